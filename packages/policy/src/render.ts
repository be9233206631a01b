import type { PolicyLayer } from "./layer.ts";
import { RULE_SOURCES, type Rule } from "./rule.ts";
import {
  type ServerDeclaration,
  serverKey,
  USUAL_SERVER,
  withoutHeaderValues,
} from "./server-declaration.ts";
import { SETTING_KEYS, type SettingValue } from "./settings-table.ts";
import type { PolicySnapshot } from "./snapshot.ts";

/** A layer as the text of a file. Reading it gives the same layer; comments of the old file are not in it. */
export function renderLayer(layer: PolicyLayer): string {
  const servers = [...layer.servers.values()].map((server) => serverText(server));
  return [...sections(layer.settings), ...servers, ...layer.rules.map(ruleText)].join("\n");
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
  const servers = [...snapshot.servers.values()].map((server) =>
    serverText(withoutHeaderValues(server), ` # ${server.source}${server.isLocked ? ", locked" : ""}`),
  );
  const posture = [...snapshot.posture].map(([type, action]) => `${quoted(type)} = ${quoted(action)}`);
  const rules = snapshot.rules.map(ruleText);
  return [...head, ...settings, ...servers, "[posture]", ...posture, "", ...rules].join("\n");
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

/** One server as the table of a file, with a line break at its end. */
export function serverText(server: ServerDeclaration, remark = ""): string {
  const lines = [...serverTable(server)].map(([key, value]) => `${key} = ${value}`);
  return [`[${serverKey(server.name)}]${remark}`, ...lines, ""].join("\n");
}

/** As a whole table, its headers as an inline one. */
export function serverTable(server: ServerDeclaration): ReadonlyMap<string, string> {
  const { own, headers } = serverFields(server);
  if (headers.size === 0) return own;
  const pairs = [...headers].map(([name, value]) => `${name} = ${value}`);
  return new Map([...own, ["headers", `{ ${pairs.join(", ")} }`]]);
}

/** The keys of a server with their values as TOML writes them, without those that hold what is usual; headers apart. */
export function serverFields(server: ServerDeclaration): {
  readonly own: ReadonlyMap<string, string>;
  readonly headers: ReadonlyMap<string, string>;
} {
  const own = new Map([["url", quoted(server.url)]]);
  const usual = usualServerFields();
  for (const [key, value] of [
    ["transport", quoted(server.transport)],
    ["protocol", quoted(server.protocol)],
    ["enabled", String(server.isEnabled)],
    ["grants", settingText(server.grants)],
    ["timeout_secs", String(server.timeoutSecs)],
  ] as const) {
    if (usual.get(key) !== value) own.set(key, value);
  }
  return { own, headers: new Map([...server.headers].map(([name, value]) => [name, quoted(value)])) };
}

/** What a key that is not there says. */
export function usualServerFields(): ReadonlyMap<string, string> {
  return new Map([
    ["transport", quoted(USUAL_SERVER.transport)],
    ["protocol", quoted(USUAL_SERVER.protocol)],
    ["enabled", String(USUAL_SERVER.isEnabled)],
    ["grants", settingText(USUAL_SERVER.grants)],
    ["timeout_secs", String(USUAL_SERVER.timeoutSecs)],
  ]);
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
