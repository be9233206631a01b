import { compileCondition, isCondition } from "./cel/condition.ts";
import type { FaultCode, PolicyFault, Position } from "./fault.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { suggestion } from "./nearest.ts";
import {
  ACTION_ALIASES,
  CHANGES,
  CHANGES_TO_COME,
  DECISIONS,
  DETECTION_LEVELS,
  type DetectionLevel,
  RULE_SOURCES,
  type Rule,
  type RuleAction,
  type RuleSource,
  rule,
  ruleId,
} from "./rule.ts";
import type { TomlValue } from "./toml.ts";

/** One field of a rule as it was given, from a file or by a route. */
export interface GivenField {
  readonly value: TomlValue | undefined;
  readonly keyAt: Position | undefined;
  readonly valueAt: Position | undefined;
  /** Where a character of a text value stands. */
  readonly placeOf: (offset: number) => Position | undefined;
}

export const RULE_KEYS = [
  "name",
  "action",
  "match",
  "detection_level",
  "priority",
  "reason",
  "enabled",
] as const;

/** Keys that rules of other products use for the same thing: refused with the word that is used here. */
const LEGACY_KEYS: ReadonlyMap<string, string> = new Map([
  ["condition", "match"],
  ["expression", "match"],
  ["expr", "match"],
  ["if", "match"],
  ["when", "match"],
  ["on", "match"],
  ["cel", "match"],
  ["decision", "action"],
  ["effect", "action"],
  ["verdict", "action"],
  ["severity", "detection_level"],
  ["level", "detection_level"],
  ["detection", "detection_level"],
  ["order", "priority"],
  ["weight", "priority"],
  ["description", "reason"],
  ["message", "reason"],
  ["block_reason", "reason"],
  ["disabled", "enabled"],
  ["active", "enabled"],
]);

const NAME = new RegExp(`^[a-z0-9_-]{1,${POLICY_LIMITS.nameCharsMax}}$`);
/** A client that keys rules by their names in a plain object would set its prototype. */
const NOT_A_NAME = "__proto__";
/** A reason is one line on a terminal: nothing in it moves the cursor or turns the text around. */
const CONTROL = /[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/u;

/** A lone surrogate cannot be written in any file. */
const HALF_CHARACTER = /\p{Surrogate}/u;

/** Checks the fields of one rule. Every fault of it is reported; with one there is no rule. */
export function checkRule(
  source: RuleSource,
  name: string,
  fields: ReadonlyMap<string, GivenField>,
  at: Position | undefined,
): Rule | readonly PolicyFault[] {
  const check = new RuleCheck(source, name, fields, at);
  return check.run();
}

class RuleCheck {
  readonly #faults: PolicyFault[] = [];
  readonly #source: RuleSource;
  readonly #name: string;
  readonly #fields: ReadonlyMap<string, GivenField>;
  readonly #at: Position | undefined;

  constructor(
    source: RuleSource,
    name: string,
    fields: ReadonlyMap<string, GivenField>,
    at: Position | undefined,
  ) {
    this.#source = source;
    this.#name = name;
    this.#fields = fields;
    this.#at = at;
  }

  run(): Rule | readonly PolicyFault[] {
    this.#names();
    const action = this.#action();
    const condition = this.#condition();
    const detection = this.#detection();
    const priority = this.#priority();
    const reason = this.#reason();
    const enabled = this.#typed("enabled", "boolean", true);
    if (this.#faults.length > 0 || action === undefined || condition === undefined) return this.#faults;
    return rule({
      name: this.#name,
      source: this.#source,
      action,
      condition,
      detection,
      priority,
      reason,
      isEnabled: enabled,
      at: this.#at,
    });
  }

  #fault(code: FaultCode, message: string, at: Position | undefined = this.#at): void {
    const subject = ruleId(this.#source, this.#name.slice(0, POLICY_LIMITS.nameCharsMax));
    this.#faults.push({ code, message, at, subject });
  }

  #names(): void {
    if (!NAME.test(this.#name) || this.#name === NOT_A_NAME) {
      const shown = this.#name.slice(0, POLICY_LIMITS.nameCharsMax);
      const why = NAME.test(this.#name)
        ? "it means something else"
        : "a name is 1 to 64 of a-z, 0-9, _ and -";
      this.#fault("bad_name", `Cannot name rule "${shown}": ${why}`);
    }
    for (const [key, { keyAt }] of this.#fields) {
      if ((RULE_KEYS as readonly string[]).includes(key)) continue;
      const now = LEGACY_KEYS.get(key);
      if (now !== undefined) this.#fault("legacy_key", `"${key}" is written "${now}" here`, keyAt);
      else {
        const near = suggestion(key, RULE_KEYS);
        this.#fault("unknown_key", `a rule has no key "${key.slice(0, 64)}"${near}`, keyAt);
      }
    }
    const given = this.#typed("name", "string", this.#name);
    if (given !== this.#name) {
      const text = `name "${given.slice(0, 64)}" is not that of its table, "${this.#name}"`;
      this.#fault("bad_name", text, this.#fields.get("name")?.valueAt);
    }
  }

  #typed<T extends string | boolean>(key: string, type: "string" | "boolean", usual: T): T {
    const field = this.#fields.get(key);
    if (field === undefined) return usual;
    if (typeof field.value === type) return field.value as T;
    this.#fault(
      "bad_value",
      `"${key}" takes ${type === "string" ? "a text" : "true or false"}`,
      field.valueAt,
    );
    return usual;
  }

  #action(): RuleAction | undefined {
    const field = this.#fields.get("action");
    if (field === undefined) {
      this.#fault("missing_key", 'a rule needs "action"');
      return undefined;
    }
    const given = this.#typed("action", "string", "");
    const known: readonly string[] = [...DECISIONS, ...CHANGES];
    const action = ACTION_ALIASES.get(given) ?? (known.includes(given) ? (given as RuleAction) : undefined);
    if (action === undefined && typeof field.value === "string") {
      const offered = known.filter((each) => !CHANGES_TO_COME.has(each as RuleAction));
      const text = `"${given.slice(0, 64)}" is no action: take ${offered.join(", ")}`;
      this.#fault("bad_value", text, field.valueAt);
    }
    return action;
  }

  #condition() {
    const field = this.#fields.get("match");
    if (field === undefined) {
      this.#fault("missing_key", 'a rule needs "match"; write "true" to match everything');
      return undefined;
    }
    if (typeof field.value !== "string") {
      this.#fault("bad_value", '"match" takes a text', field.valueAt);
      return undefined;
    }
    if (HALF_CHARACTER.test(field.value)) {
      this.#fault("bad_value", '"match" holds half a character', field.valueAt);
      return undefined;
    }
    const compiled = compileCondition(field.value);
    if (isCondition(compiled)) return compiled;
    this.#fault(compiled.code, compiled.message, field.placeOf(compiled.offset));
    return undefined;
  }

  #detection(): DetectionLevel {
    const given = this.#typed("detection_level", "string", "none");
    if ((DETECTION_LEVELS as readonly string[]).includes(given)) return given as DetectionLevel;
    const text = `"${given.slice(0, 64)}" is no level: take ${DETECTION_LEVELS.join(", ")}`;
    this.#fault("bad_value", text, this.#fields.get("detection_level")?.valueAt);
    return "none";
  }

  #priority(): number {
    const { least, most, usual } = RULE_SOURCES[this.#source];
    const field = this.#fields.get("priority");
    if (field === undefined) return usual;
    if (typeof field.value !== "bigint") {
      this.#fault("bad_priority", '"priority" takes a whole number', field.valueAt);
      return usual;
    }
    if (field.value >= BigInt(least) && field.value <= BigInt(most)) return Number(field.value);
    const text = `priority ${field.value} is not in ${least}..${most}, the range of these rules`;
    this.#fault("bad_priority", text, field.valueAt);
    return usual;
  }

  #reason(): string {
    const reason = this.#typed("reason", "string", "");
    if (reason.length > POLICY_LIMITS.reasonCharsMax || CONTROL.test(reason) || HALF_CHARACTER.test(reason)) {
      const text = `"reason" takes one line of at most ${POLICY_LIMITS.reasonCharsMax} characters`;
      this.#fault("bad_value", text, this.#fields.get("reason")?.valueAt);
    }
    return reason;
  }
}
