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

function settingText(value: SettingValue): string {
  if (typeof value === "string") return quoted(value);
  return typeof value === "object" ? `[${value.map(quoted).join(", ")}]` : String(value);
}

function ruleText(rule: Rule): string {
  const { usual, table } = RULE_SOURCES[rule.source];
  const lines = [`[${[...table, rule.name].join(".")}]`, `action = ${quoted(rule.action)}`];
  lines.push(`match = ${matchText(rule.condition.source)}`);
  if (rule.priority !== usual) lines.push(`priority = ${rule.priority}`);
  if (rule.detection !== "none") lines.push(`detection_level = ${quoted(rule.detection)}`);
  if (rule.reason !== "") lines.push(`reason = ${quoted(rule.reason)}`);
  if (!rule.isEnabled) lines.push("enabled = false");
  return [...lines, ""].join("\n");
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
