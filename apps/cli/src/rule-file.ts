import type { RuleFields } from "@capsem/api";
import { Failure } from "@capsem/base";
import { scanToml, type TomlStatement } from "./command/mcp-toml-statements.ts";
import { readTomlValue } from "./toml-value.ts";

type Value = string | number | boolean;
const KEYS = ["action", "match", "detection_level", "priority", "reason", "enabled"] as const;

export interface NamedRule {
  readonly name: string;
  readonly fields: RuleFields;
}

/** The `[profiles.rules.NAME]` tables of a text, or the one of this name. Whether they make rules, the service says. */
export function readRules(text: string, name: string | undefined): NamedRule[] {
  const tables = tablesOf(text);
  const names = [...tables.keys()];
  const wanted = name?.replace(/^profiles\.rules\./, "");
  if (names.length === 0) throw refusal("it has no [profiles.rules.NAME] table");
  if (wanted !== undefined && !names.includes(wanted))
    throw refusal(`it has no rule "${wanted}", but ${names.join(", ")}`);
  return [...tables].flatMap(([each, values]) =>
    wanted === undefined || each === wanted ? [ruleOf(each, values)] : [],
  );
}

function ruleOf(name: string, values: ReadonlyMap<string, Value>): NamedRule {
  for (const key of values.keys())
    if (key !== "name" && !(KEYS as readonly string[]).includes(key))
      throw refusal(`a rule has no key "${key}", but ${KEYS.join(", ")}`);
  const { match, action, name: _, ...others } = Object.fromEntries(values);
  if (match === undefined || action === undefined) throw refusal(`rule "${name}" needs match and action`);
  // Values of a wrong type are the service's to refuse, with its words for them.
  return { name, fields: { action, match, ...others } as unknown as RuleFields };
}

function tablesOf(text: string): Map<string, Map<string, Value>> {
  const tables = new Map<string, Map<string, Value>>();
  let table: Map<string, Value> | null = null;
  for (const statement of statementsOf(text)) {
    const { kind, path, start, end } = statement;
    if (kind === "header") {
      const [profiles, rules, name, ...more] = path;
      const isRule = profiles === "profiles" && rules === "rules" && name !== undefined && more.length === 0;
      table = isRule ? new Map() : null;
      if (isRule && tables.has(name)) throw refusal(`rule "${name}" is there twice`);
      if (table !== null && name !== undefined) tables.set(name, table);
      continue;
    }
    const [key, ...more] = path;
    if (table === null || key === undefined) continue;
    const value = more.length === 0 ? readTomlValue(text.slice(start, end)) : null;
    if (value === null) throw refusal(`${path.join(".")} is no text, whole number, true or false`);
    if (table.has(key)) throw refusal(`${key} is there twice`);
    table.set(key, value);
  }
  return tables;
}

function statementsOf(text: string): TomlStatement[] {
  try {
    return scanToml(text);
  } catch (thrown) {
    throw thrown instanceof Failure ? refusal(thrown.message) : thrown;
  }
}

function refusal(why: string): Failure {
  return new Failure("invalid_input", `Cannot read the rule: ${why}`);
}
