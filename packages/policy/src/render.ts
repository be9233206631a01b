import type { PolicyLayer } from "./layer.ts";
import { RULE_SOURCES, type Rule } from "./rule.ts";
import { SETTING_KEYS, type SettingValue } from "./settings-table.ts";
import type { PolicySnapshot } from "./snapshot.ts";

/** A layer as the text of a file. Reading it gives the same layer; comments of the old file are not in it. */
export function renderLayer(layer: PolicyLayer): string {
  return [...sections(layer.settings), ...layer.rules.map(ruleText)].join("\n");
}

/** What is in force, for a person and for the record: `vm/active_policy.toml`. It is written, never read back. */
export function renderActivePolicy(snapshot: PolicySnapshot): string {
  const { values, locked, sources } = snapshot.settings;
  const head = [
    `# Policy in force: digest ${snapshot.digest}, version ${snapshot.version}, preset ${snapshot.preset}.`,
    `# Rules in the order of judgement. Written by the service; changes here have no effect.`,
    "",
  ];
  const settings = sections(new Map(SETTING_KEYS.map((key) => [key, values[key]])), (key) => {
    const source = sources.get(key as (typeof SETTING_KEYS)[number]) ?? "builtin";
    return locked.has(key as (typeof SETTING_KEYS)[number]) ? ` # ${source}, locked` : ` # ${source}`;
  });
  const posture = [...snapshot.posture].map(([type, action]) => `${quoted(type)} = ${quoted(action)}`);
  return [...head, ...settings, "[posture]", ...posture, "", ...snapshot.rules.map(ruleText)].join("\n");
}

/** Settings by section, in the order of the table. */
function sections(
  settings: ReadonlyMap<string, SettingValue>,
  remark: (key: string) => string = () => "",
): string[] {
  const lines: string[] = [];
  let open: string | undefined;
  for (const key of SETTING_KEYS) {
    const value = settings.get(key);
    if (value === undefined) continue;
    const dot = key.lastIndexOf(".");
    const section = key.slice(0, dot);
    if (section !== open) lines.push(...(open === undefined ? [] : [""]), `[${section}]`);
    open = section;
    lines.push(`${key.slice(dot + 1)} = ${settingText(value)}${remark(key)}`);
  }
  return lines.length === 0 ? lines : [...lines, ""];
}

/** A setting's value as TOML writes it. */
export function settingText(value: SettingValue): string {
  if (typeof value === "string") return quoted(value);
  return typeof value === "object" ? `[${value.map(quoted).join(", ")}]` : String(value);
}

/** One rule as the table of a file, with a line break at its end: what stands in a file, and in a record of it. */
export function ruleText(rule: Rule): string {
  const lines = [...ruleFields(rule)].map(([key, value]) => `${key} = ${value}`);
  return [`[${rule.id}]`, ...lines, ""].join("\n");
}

/** The keys of a rule with their values as TOML writes them, without those that hold what is usual. */
export function ruleFields(rule: Rule): ReadonlyMap<string, string> {
  const fields = new Map([
    ["action", quoted(rule.action)],
    ["match", matchText(rule.condition.source)],
  ]);
  if (rule.priority !== RULE_SOURCES[rule.source].usual) fields.set("priority", String(rule.priority));
  if (rule.detection !== "none") fields.set("detection_level", quoted(rule.detection));
  if (rule.reason !== "") fields.set("reason", quoted(rule.reason));
  if (!rule.isEnabled) fields.set("enabled", "false");
  return fields;
}

/** A condition reads best unescaped, where TOML can hold it so. */
function matchText(source: string): string {
  const isPlain = !source.includes("'") && !/[^\P{Cc}\t\n]/u.test(source);
  if (!isPlain) return quoted(source);
  return source.includes("\n") ? `'''\n${source}'''` : `'${source}'`;
}

function quoted(text: string): string {
  return JSON.stringify(text).replace(/\u007f/g, "\\u007f");
}
