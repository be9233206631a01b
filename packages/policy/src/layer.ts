import type { Checked, FaultCode, PolicyFault, Position } from "./fault.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { suggestion } from "./nearest.ts";
import { PatternTotal, tooManyPatterns } from "./pattern-total.ts";
import { RULE_SOURCES, type Rule, type RuleSource, ruleId } from "./rule.ts";
import { checkRule, type GivenField } from "./rule-fields.ts";
import { SERVER_TABLE, type ServerDeclaration, serverKey } from "./server-declaration.ts";
import { checkServer, type GivenServer, givenServer } from "./server-fields.ts";
import { tooManyServers } from "./servers.ts";
import {
  checkSetting,
  SETTING_KEYS,
  type SettingKey,
  type SettingValue,
  settingRow,
} from "./settings-table.ts";
import { readToml, type TomlEntry } from "./toml.ts";

/** What one author says: the user's file with the files it names, or the corporation's. */
export interface PolicyLayer {
  readonly source: RuleSource;
  readonly rules: readonly Rule[];
  readonly settings: ReadonlyMap<SettingKey, SettingValue>;
  /** Tool servers by name, in the order of the file. */
  readonly servers: ReadonlyMap<string, ServerDeclaration>;
  /** Only of a preset: what happens where no rule matches, by event type. */
  readonly posture: ReadonlyMap<string, string>;
}

export function emptyLayer(source: RuleSource): PolicyLayer {
  return Object.freeze({
    source,
    rules: [],
    settings: new Map(),
    servers: new Map(),
    posture: new Map(),
  });
}

/**
 * Reads a whole file, or refuses it whole. Every fault is reported, at most `faultsMax`: a person mends a file
 * once. A rule file that settings name is read the same way, with `rulesOnly`.
 */
export function parseLayer(
  source: RuleSource,
  text: string,
  options: { readonly rulesOnly?: boolean } = {},
): Checked<PolicyLayer> {
  const read = readToml(text);
  if (read.kind === "refused") return read;
  return layerOf(source, read.value, options);
}

/** What the entries of a whole file say, as `parseLayer`. */
export function layerOf(
  source: RuleSource,
  entries: readonly TomlEntry[],
  options: { readonly rulesOnly?: boolean } = {},
): Checked<PolicyLayer> {
  return new LayerReader(source, options.rulesOnly === true).read(entries);
}

/** Several files of one author as one layer. A rule that two of them name is a fault. */
export function joinLayers(layers: readonly [PolicyLayer, ...PolicyLayer[]]): Checked<PolicyLayer> {
  const rules = layers.flatMap((layer) => layer.rules);
  const seen = new Set<string>();
  const faults: PolicyFault[] = [];
  for (const { id, at } of rules) {
    const message = `rule "${id}" is in two files`;
    if (seen.has(id)) faults.push({ code: "duplicate_rule", message, at, subject: id });
    seen.add(id);
  }
  if (rules.length > POLICY_LIMITS.rulesMax) {
    const message = `${rules.length} rules, limit ${POLICY_LIMITS.rulesMax}`;
    faults.push({ code: "too_large", message, at: undefined, subject: undefined });
  }
  const patterns = tooManyPatterns(rules);
  if (patterns !== undefined) faults.push(patterns);
  if (faults.length > 0) return { kind: "refused", faults: faults.slice(0, POLICY_LIMITS.faultsMax) };
  const settings = new Map(layers.flatMap((layer) => [...layer.settings]));
  return { kind: "ok", value: Object.freeze({ ...layers[0], rules: Object.freeze(rules), settings }) };
}

/** Tables of other products and of earlier drafts, with what replaces them. */
const LEGACY_TABLES: ReadonlyMap<string, string> = new Map([
  ["rules", "[profiles.rules.NAME]"],
  ["rule", "[profiles.rules.NAME]"],
  ["policy", "[profiles.rules.NAME]"],
  ["policies", "[profiles.rules.NAME]"],
  ["network", "rules on network and http fields"],
  ["security", "[profiles.rules.NAME]"],
]);

interface GivenRule {
  readonly at: Position;
  readonly fields: Map<string, GivenField>;
}

class LayerReader {
  readonly #faults: PolicyFault[] = [];
  readonly #given = new Map<string, GivenRule>();
  readonly #servers = new Map<string, GivenServer>();
  readonly #settings = new Map<SettingKey, SettingValue>();
  readonly #posture = new Map<string, string>();
  readonly #tablesRefused = new Set<string>();
  readonly #source: RuleSource;
  readonly #isRulesOnly: boolean;

  constructor(source: RuleSource, isRulesOnly: boolean) {
    this.#source = source;
    this.#isRulesOnly = isRulesOnly;
  }

  read(entries: readonly TomlEntry[]): Checked<PolicyLayer> {
    for (const entry of entries) {
      const owner = ruleSourceOf(entry.path);
      if (owner !== undefined) this.#ruleEntry(entry, owner);
      else if (isServerPath(entry)) this.#serverEntry(entry);
      else if (this.#source === "builtin" && entry.path[0] === "posture") this.#postureEntry(entry);
      else this.#settingEntry(entry);
      if (this.#faults.length >= POLICY_LIMITS.faultsMax) break;
    }
    const rules = this.#rules();
    const servers = this.#serversChecked();
    if (this.#faults.length > 0) {
      this.#faults.sort(byPlace);
      return { kind: "refused", faults: this.#faults.slice(0, POLICY_LIMITS.faultsMax) };
    }
    const layer = { source: this.#source, rules, settings: this.#settings, servers, posture: this.#posture };
    return { kind: "ok", value: Object.freeze(layer) };
  }

  #fault(code: FaultCode, message: string, at: Position, subject: string | undefined): void {
    this.#faults.push({ code, message, at, subject });
  }

  #rules(): readonly Rule[] {
    const rules: Rule[] = [];
    if (this.#given.size > POLICY_LIMITS.rulesMax) {
      const text = `${this.#given.size} rules, limit ${POLICY_LIMITS.rulesMax}`;
      this.#fault("too_large", text, { line: 1, column: 1 }, undefined);
      return rules;
    }
    const patterns = new PatternTotal();
    for (const [name, { fields, at }] of this.#given) {
      if (this.#faults.length >= POLICY_LIMITS.faultsMax) break;
      const checked = checkRule(this.#source, name, fields, at);
      if ("id" in checked) {
        const fault = patterns.add(checked);
        rules.push(checked);
        if (fault === undefined) continue;
        this.#faults.push(fault);
        break;
      }
      this.#faults.push(...checked);
    }
    return Object.freeze(rules);
  }

  #serversChecked(): ReadonlyMap<string, ServerDeclaration> {
    const servers = new Map<string, ServerDeclaration>();
    for (const [name, given] of this.#servers) {
      if (this.#faults.length >= POLICY_LIMITS.faultsMax) break;
      const checked = checkServer(name, given);
      if ("url" in checked) servers.set(name, checked);
      else this.#faults.push(...checked);
    }
    const fault = tooManyServers(servers, new Map());
    if (fault !== undefined) this.#faults.push(fault);
    return servers;
  }

  #serverEntry(entry: TomlEntry): void {
    const [name, key, ...deeper] = entry.path.slice(SERVER_TABLE.length);
    if (this.#isRulesOnly || this.#source === "builtin") {
      this.#faultOfTable("wrong_source", "a rule file holds rules only", entry, serverKey(name ?? ""));
    } else if (name === undefined) {
      if (entry.kind !== "table") this.#unknown(entry);
    } else if (key === undefined) {
      if (entry.kind === "table") this.#serverNamed(name, entry.keyAt);
      else this.#fault("bad_value", "a server is a table", entry.keyAt, entry.path.join("."));
    } else this.#serverField(this.#serverNamed(name, entry.keyAt), key, deeper, entry);
  }

  #serverField(
    given: GivenServer,
    key: string,
    [inner, ...deeper]: readonly string[],
    entry: TomlEntry,
  ): void {
    const isHeaders = key === "headers";
    if (isHeaders && inner !== undefined) {
      given.headers.set(inner, deeper.length === 0 ? entry : { ...entry, value: undefined });
    } else if (isHeaders && entry.kind === "table") return;
    else if (inner === undefined) given.fields.set(key, entry);
    else if (!given.fields.has(key)) given.fields.set(key, { ...entry, value: undefined });
  }

  #serverNamed(name: string, at: Position): GivenServer {
    const known = this.#servers.get(name);
    if (known !== undefined) return known;
    const made = givenServer(at);
    this.#servers.set(name, made);
    return made;
  }

  #ruleEntry(entry: TomlEntry, owner: RuleSource): void {
    const [name, key, ...deeper] = entry.path.slice(RULE_SOURCES[owner].table.length);
    if (owner !== this.#source) {
      const text = `rules of this file are written [${ruleId(this.#source, "NAME")}]`;
      this.#faultOfTable("wrong_source", text, entry, ruleId(owner, name ?? ""));
    } else if (name === undefined) {
      if (entry.kind !== "table") this.#unknown(entry);
    } else if (key !== undefined) {
      const { fields } = this.#ruleNamed(name, entry.keyAt);
      // No key of a rule is a table: what lies deeper makes its key one that holds no value.
      if (deeper.length === 0) fields.set(key, entry);
      else if (!fields.has(key)) fields.set(key, { ...entry, value: undefined });
    } else if (entry.kind === "table") this.#ruleNamed(name, entry.keyAt);
    else this.#fault("bad_value", "a rule is a table", entry.keyAt, entry.path.join("."));
  }

  #ruleNamed(name: string, at: Position): GivenRule {
    const known = this.#given.get(name);
    if (known !== undefined) return known;
    const made = { at, fields: new Map<string, GivenField>() };
    this.#given.set(name, made);
    return made;
  }

  #postureEntry(entry: TomlEntry): void {
    if (entry.kind === "table") return;
    this.#posture.set(entry.path.slice(1).join("."), String(entry.value));
  }

  #settingEntry(entry: TomlEntry): void {
    const key = entry.path.join(".");
    const row = settingRow(key);
    if (row === undefined || entry.kind === "table") {
      const isSection = row === undefined && SETTING_KEYS.some((known) => known.startsWith(`${key}.`));
      if (entry.kind !== "table" || !isSection) this.#unknown(entry);
    } else if (this.#isRulesOnly || this.#source === "builtin") {
      this.#fault("wrong_source", "a rule file holds rules only", entry.keyAt, key);
    } else if (row.isCorpOnly === true && this.#source !== "corp") {
      this.#fault("wrong_source", `"${key}" is for corp.toml only`, entry.keyAt, key);
    } else {
      const checked = checkSetting(row, entry.value);
      if ("value" in checked) this.#settings.set(key as SettingKey, checked.value);
      else this.#fault("bad_value", `"${key}" takes ${checked.takes}`, entry.valueAt, key);
    }
  }

  #unknown(entry: TomlEntry): void {
    const key = entry.path.join(".").slice(0, 120);
    const now = LEGACY_TABLES.get(entry.path[0] ?? "");
    const misnamed = entry.path.slice(0, 2).join(".");
    const server = meantAsServer(entry);
    if (now !== undefined) {
      this.#faultOfTable("legacy_key", `"${key}" is written as ${now} here`, entry, entry.path[0] ?? "");
    } else if (server !== undefined) {
      const text = `no table "${key}"; did you mean "${serverKey(server)}"?`;
      this.#faultOfTable("unknown_key", text.slice(0, 300), entry, misnamed);
    } else if (this.#isMeantAsRule(entry)) {
      const text = `no table "${key}"; did you mean "${ruleId(this.#source, entry.path[2] ?? "")}"?`;
      this.#faultOfTable("unknown_key", text.slice(0, 300), entry, misnamed);
    } else if (!this.#isInRefused(entry)) {
      const isTable = entry.kind === "table";
      const near = suggestion(key, isTable ? [...SECTIONS, ...SETTING_KEYS] : SETTING_KEYS);
      const text = `no setting "${key}"${near}`;
      if (isTable) this.#faultOfTable("unknown_key", text, entry, key);
      else this.#fault("unknown_key", text, entry.keyAt, key);
    }
  }

  /** `[profile.rules.NAME]` and the like, or a key below it. */
  #isMeantAsRule({ path, kind }: TomlEntry): boolean {
    if (path.length < (kind === "table" ? 3 : 4)) return false;
    const table = RULE_SOURCES[this.#source].table.join(".");
    return path[1] === "rules" || suggestion(path.slice(0, 2).join("."), [table]) !== "";
  }

  #isInRefused({ path }: TomlEntry): boolean {
    return path.some((_, length) => this.#tablesRefused.has(path.slice(0, length).join(".")));
  }

  /** One fault for a whole table: its keys would say the same again. */
  #faultOfTable(code: FaultCode, message: string, entry: TomlEntry, table: string): void {
    if (this.#tablesRefused.has(table)) return;
    this.#tablesRefused.add(table);
    this.#fault(code, message, entry.keyAt, table.slice(0, 120));
  }
}

/** `[mcp]` and `[mcp.servers]` say nothing by themselves. */
function isServerPath({ path, kind }: TomlEntry): boolean {
  if (path.length < SERVER_TABLE.length && kind !== "table") return false;
  return SERVER_TABLE.every((part, index) => index >= path.length || path[index] === part);
}

/** The server's name in `[mcp.server.NAME]`, `[mcp_servers.NAME]` and the like; undefined for other tables. */
function meantAsServer({ path: [first = "", second, third] }: TomlEntry): string | undefined {
  if (first === "mcp") return third ?? "NAME";
  return first === "mcpServers" || first === "mcp_servers" ? (second ?? "NAME") : undefined;
}

/** `limits` and the like. */
const SECTIONS: readonly string[] = [...new Set(SETTING_KEYS.map((key) => key.slice(0, key.indexOf("."))))];

/** As they stand in the file. */
function byPlace(a: PolicyFault, b: PolicyFault): number {
  return (a.at?.line ?? 0) - (b.at?.line ?? 0) || (a.at?.column ?? 0) - (b.at?.column ?? 0);
}

function ruleSourceOf(path: readonly string[]): RuleSource | undefined {
  const sources = Object.keys(RULE_SOURCES) as RuleSource[];
  return sources.find((source) => {
    const { table } = RULE_SOURCES[source];
    return table.every((part, index) => path[index] === part);
  });
}
