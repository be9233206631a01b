import type { Checked, FaultCode, PolicyFault } from "./fault.ts";
import type { PolicyLayer } from "./layer.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { suggestion } from "./nearest.ts";
import { tooManyPatterns } from "./pattern-total.ts";
import { type RULE_SOURCES, type Rule, ruleId } from "./rule.ts";
import { checkRule, type GivenField } from "./rule-fields.ts";
import { type ServerDeclaration, serverKey } from "./server-declaration.ts";
import { checkServer, givenServer } from "./server-fields.ts";
import { tooManyServers } from "./servers.ts";
import {
  checkSetting,
  SETTING_KEYS,
  type SettingKey,
  type SettingValue,
  settingRow,
} from "./settings-table.ts";
import type { TomlValue } from "./toml.ts";

/** One change of the user's file. Values come from a route: they are JSON, and nothing is taken for granted. */
export type PolicyEdit =
  | { readonly kind: "set"; readonly key: string; readonly value: unknown }
  | { readonly kind: "reset"; readonly key: string }
  | { readonly kind: "put_rule"; readonly id: string; readonly fields: Readonly<Record<string, unknown>> }
  | { readonly kind: "delete_rule"; readonly id: string }
  /** `id` is `mcp.servers.NAME`; the fields are all that the declaration says then. */
  | { readonly kind: "put_server"; readonly id: string; readonly fields: Readonly<Record<string, unknown>> }
  | { readonly kind: "delete_server"; readonly id: string };

export interface EditedLayers {
  /** The user's `settings.toml`; the one layer that routes may change. */
  readonly user: PolicyLayer;
  readonly corp: PolicyLayer;
  /** Ids of the user's rules that stand in other files. */
  readonly elsewhere?: ReadonlySet<string>;
}

/** The user's layer with every edit made, in order, or every reason why none is. */
export function applyEdits(layers: EditedLayers, edits: readonly PolicyEdit[]): Checked<PolicyLayer> {
  const batch = new Batch(layers);
  for (const edit of edits) batch.apply(edit);
  return batch.result();
}

class Batch {
  readonly #layers: EditedLayers;
  readonly #settings: Map<SettingKey, SettingValue>;
  readonly #rules: Map<string, Rule>;
  readonly #servers: Map<string, ServerDeclaration>;
  readonly #faults: PolicyFault[] = [];

  constructor(layers: EditedLayers) {
    this.#layers = layers;
    this.#settings = new Map(layers.user.settings);
    this.#rules = new Map(layers.user.rules.map((rule) => [rule.id, rule]));
    this.#servers = new Map(layers.user.servers);
  }

  apply(edit: PolicyEdit): void {
    switch (edit.kind) {
      case "set":
      case "reset":
        this.#setting(edit);
        break;
      case "put_rule":
        this.#putRule(edit.id, edit.fields);
        break;
      case "delete_rule":
        if (this.#ownName(edit.id) !== undefined && !this.#rules.delete(edit.id)) {
          this.#fault("unknown_rule", `no rule "${edit.id.slice(0, 120)}"`, edit.id);
        }
        break;
      case "put_server":
      case "delete_server":
        this.#server(edit);
    }
  }

  result(): Checked<PolicyLayer> {
    if (this.#rules.size > POLICY_LIMITS.rulesMax) {
      this.#fault(
        "too_large",
        `${this.#rules.size} rules, limit ${POLICY_LIMITS.rulesMax}`,
        "profiles.rules",
      );
    }
    const patterns = tooManyPatterns(this.#rules.values());
    if (patterns !== undefined) this.#faults.push({ ...patterns, at: undefined });
    const tooMany = tooManyServers(this.#servers, this.#layers.corp.servers);
    if (tooMany !== undefined && this.#servers.size > this.#layers.user.servers.size) {
      this.#fault(tooMany.code, tooMany.message, tooMany.subject ?? "");
    }
    if (this.#faults.length > 0) {
      return { kind: "refused", faults: this.#faults.slice(0, POLICY_LIMITS.faultsMax) };
    }
    const rules = Object.freeze([...this.#rules.values()]);
    const changed = { rules, settings: this.#settings, servers: this.#servers };
    return { kind: "ok", value: Object.freeze({ ...this.#layers.user, ...changed }) };
  }

  #fault(code: FaultCode, message: string, subject: string): void {
    this.#faults.push({ code, message, at: undefined, subject: subject.slice(0, 120) });
  }

  #setting(edit: Extract<PolicyEdit, { kind: "set" | "reset" }>): void {
    const { key } = edit;
    const row = settingRow(key);
    if (row === undefined) {
      const near = suggestion(key, SETTING_KEYS);
      this.#fault("unknown_key", `no setting "${key.slice(0, 120)}"${near}`, key);
    } else if (this.#layers.corp.settings.has(key as SettingKey)) {
      this.#fault("locked", `Cannot change "${key}": the corporation has set it`, key);
    } else if (row.isCorpOnly === true) {
      this.#fault("locked", `Cannot change "${key}": it is for corp.toml only`, key);
    } else if (edit.kind === "reset") this.#settings.delete(key as SettingKey);
    else {
      const checked = checkSetting(row, edit.value);
      if ("value" in checked) this.#settings.set(key as SettingKey, checked.value);
      else this.#fault("bad_value", `"${key}" takes ${checked.takes}`, key);
    }
  }

  /** The rule's name when it is one that the user may change. */
  #ownName(id: string): string | undefined {
    const prefix = ruleId("user", "");
    if (!id.startsWith(prefix)) {
      const isKnown = ["corp", "builtin"].some((source) =>
        id.startsWith(ruleId(source as keyof typeof RULE_SOURCES, "")),
      );
      const text = isKnown ? "only the user's rules can be changed" : `a rule is named ${prefix}NAME`;
      this.#fault(isKnown ? "locked" : "bad_name", `Cannot change "${id.slice(0, 120)}": ${text}`, id);
      return undefined;
    }
    if (this.#layers.elsewhere?.has(id) === true) {
      this.#fault("locked", `Cannot change "${id}": it stands in another rule file`, id);
      return undefined;
    }
    return id.slice(prefix.length);
  }

  #putRule(id: string, given: Readonly<Record<string, unknown>>): void {
    const name = this.#ownName(id);
    if (name === undefined) return;
    const checked = checkRule("user", name, fieldsOf(given), undefined);
    if ("id" in checked) this.#rules.set(checked.id, checked);
    else this.#faults.push(...checked);
  }

  #server(edit: Extract<PolicyEdit, { kind: "put_server" | "delete_server" }>): void {
    const prefix = serverKey("");
    const shown = edit.id.slice(0, 120);
    const name = edit.id.slice(prefix.length);
    if (!edit.id.startsWith(prefix)) {
      this.#fault("bad_name", `Cannot change "${shown}": a server is named ${prefix}NAME`, edit.id);
    } else if (this.#layers.corp.servers.has(name)) {
      this.#fault("locked", `Cannot change "${shown}": the corporation has declared it`, edit.id);
    } else if (edit.kind === "put_server") this.#putServer(name, edit.fields);
    else if (!this.#servers.delete(name)) {
      this.#fault("unknown_server", `no tool server "${name.slice(0, 64)}"`, edit.id);
    }
  }

  #putServer(name: string, { headers, ...given }: Readonly<Record<string, unknown>>): void {
    const server = { ...givenServer(undefined), fields: fieldsOf(given) };
    if (isRecord(headers)) {
      for (const [key, field] of fieldsOf(headers)) server.headers.set(key, field);
    } else if (headers !== undefined) server.fields.set("headers", fieldOf(headers));
    const checked = checkServer(name, server);
    if ("url" in checked) this.#servers.set(name, checked);
    else this.#faults.push(...checked);
  }
}

function fieldsOf(given: Readonly<Record<string, unknown>>): Map<string, GivenField> {
  const present = Object.entries(given).filter(([, value]) => value !== undefined);
  return new Map(present.map(([key, value]) => [key, fieldOf(value)]));
}

function fieldOf(value: unknown): GivenField {
  return { value: tomlValue(value), keyAt: undefined, valueAt: undefined, placeOf: () => undefined };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function tomlValue(value: unknown): TomlValue | undefined {
  if (typeof value === "number") return Number.isSafeInteger(value) ? BigInt(value) : value;
  if (Array.isArray(value)) {
    const items = value.map(tomlValue);
    return items.every((item) => item !== undefined) ? items : undefined;
  }
  return typeof value === "string" || typeof value === "boolean" ? value : undefined;
}
