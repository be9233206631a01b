import type { PolicyEdit } from "../edit.ts";
import type { Random } from "./random.ts";

/** Settings whose values are easy to make, with several of one section. */
const VALUES: ReadonlyMap<string, readonly unknown[]> = new Map<string, readonly unknown[]>([
  ["profiles.preset", ["open", "developer"]],
  ["profiles.rule_files", [[], ['a "b" # no comment', "c\\d"], ["e"]]],
  ["limits.idle_secs", [1, 2.5, 60]],
  ["limits.running_max", [1, 2, 7]],
  ["limits.pool_size", [0, 3]],
  ["asks.timeout_secs", [30, 60]],
  ["confinement.allow_unconfined", [true, false]],
]);
const RULES = ["a", "b", "c-d", "e_1", "7"] as const;
const RULE_FIELDS: ReadonlyMap<string, readonly unknown[]> = new Map<string, readonly unknown[]>([
  ["action", ["allow", "ask", "block", "redact"]],
  [
    "match",
    [
      "true",
      '\n  http.host == "x.test" // #\n  # [limits]\n'.replace("# [", "|| false // ["),
      "http.path == '#'",
    ],
  ],
  ["priority", [10, 11, 500]],
  ["reason", ["", 'a "b" \\ c', "é💥 # no comment", "it's"]],
  ["enabled", [true, false]],
  ["detection_level", ["none", "high"]],
]);

function ruleFields(random: Random): Map<string, unknown> {
  const kept = [...RULE_FIELDS].filter(([key]) => key === "action" || key === "match" || random.chance(2));
  return new Map(kept.map(([key, values]) => [key, random.pick(values)]));
}

export function randomEdits(random: Random): PolicyEdit[] {
  return Array.from({ length: random.below(6) }, (): PolicyEdit => {
    const [key, values] = random.pick([...VALUES]);
    const id = `profiles.rules.${random.pick(RULES)}`;
    switch (random.below(5)) {
      case 0:
        return { kind: "reset", key };
      case 1:
        return { kind: "delete_rule", id };
      case 2:
        return { kind: "put_rule", id, fields: Object.fromEntries(ruleFields(random)) };
      default:
        return { kind: "set", key, value: random.pick(values) };
    }
  });
}

export interface WrittenLine {
  readonly text: string;
  /** Settings and rules by their ids that may change this line; a section's name for all that could be below it. */
  readonly about: readonly string[];
}

/** A settings file as many hands could have written it, line by line. Now and then it is no TOML. */
export function randomLayerLines(random: Random): WrittenLine[] {
  const writer = new Writer(random);
  const sections = ["profiles", "limits", "asks", "confinement"].filter(() => !random.chance(4));
  const forms = new Map(
    sections.map((section) => [section, random.pick(["header", "header", "dotted", "inline"])]),
  );
  const of = (form: string) => sections.filter((section) => forms.get(section) === form);
  writer.remark([]);
  for (const section of of("dotted")) writer.dotted(section);
  for (const section of of("inline")) writer.inline(section);
  for (const section of of("header")) writer.header(section);
  writer.rest(forms.get("profiles") !== "inline");
  return writer.lines;
}

/** Writes each rule once, in whatever form the section allows that comes by. */
class Writer {
  readonly lines: WrittenLine[] = [];
  readonly #random: Random;
  readonly #rules: Map<string, Map<string, unknown>>;
  #remarks = 0;

  constructor(random: Random) {
    this.#random = random;
    this.#rules = new Map(random.some(RULES, 2).map((name) => [name, ruleFields(random)]));
  }

  remark(about: readonly string[]): void {
    const random = this.#random;
    if (!random.chance(3)) return;
    this.#remarks += 1;
    this.lines.push({ text: `${random.pick(["", "  "])}# ${this.#remarks} ''' [x] = "`, about });
  }

  dotted(section: string): void {
    for (const [key, value] of this.#settings(section))
      this.#pair(`${section}.${key}`, value, [`${section}.${key}`]);
    if (section === "profiles") this.#someRules("profiles.rules.");
  }

  inline(section: string): void {
    const pairs = [...this.#settings(section)].map(
      ([key, value]) => `${this.#key(key)}=${this.#value(value, true)}`,
    );
    for (const [name, fields] of section === "profiles" ? this.#takeRules() : []) {
      const random = this.#random;
      const inner = [...fields].map(([key, value]) => [key, this.#value(value, true)] as const);
      if (random.chance(2)) pairs.push(...inner.map(([key, value]) => `rules . ${name}.${key} = ${value}`));
      else pairs.push(`rules.${name} = {${inner.map(([key, value]) => `${key} = ${value}`).join(" ,")}}`);
    }
    this.lines.push({ text: `${section} = { ${pairs.join(", ")} }`, about: [section] });
  }

  header(section: string): void {
    this.#blank();
    this.remark([]);
    this.lines.push({ text: `[ ${this.#key(section)} ]`, about: [] });
    for (const [key, value] of this.#settings(section))
      this.#pair(this.#key(key), value, [`${section}.${key}`]);
    if (section === "profiles" && this.#random.chance(3)) this.#someRules("rules.");
    this.remark([]);
  }

  /** Rules that are left, below one header or below their own. */
  rest(isOpen: boolean): void {
    if (!isOpen) return;
    if (this.#random.chance(3)) {
      this.#blank();
      this.lines.push({ text: "[profiles.rules]", about: [] });
      this.#someRules("");
    }
    for (const [name, fields] of this.#takeRules()) {
      this.#blank();
      const about = [`profiles.rules.${name}`];
      this.remark(about);
      this.lines.push({ text: `[profiles.rules.${this.#key(name)}]`, about });
      for (const [key, value] of fields) {
        this.remark(about);
        this.#pair(key, value, about);
      }
      this.remark(about);
    }
    this.#blank();
  }

  #someRules(prefix: string): void {
    for (const [name, fields] of this.#takeRules(2)) {
      const about = [`profiles.rules.${name}`];
      if (this.#random.chance(2)) {
        for (const [key, value] of fields) this.#pair(`${prefix}${this.#key(name)}.${key}`, value, about);
      } else {
        const pairs = [...fields].map(([key, value]) => `${key}=${this.#value(value, true)}`);
        this.lines.push({ text: `${prefix}${name} = { ${pairs.join(", ")} }`, about });
      }
    }
  }

  #takeRules(oneIn = 1): [string, Map<string, unknown>][] {
    const taken = [...this.#rules].filter(() => this.#random.chance(oneIn));
    for (const [name] of taken) this.#rules.delete(name);
    return taken;
  }

  #settings(section: string): Map<string, unknown> {
    const keys = [...VALUES].filter(([key]) => key.startsWith(`${section}.`) && this.#random.chance(2));
    return new Map(keys.map(([key, values]) => [key.slice(section.length + 1), this.#random.pick(values)]));
  }

  #pair(key: string, value: unknown, about: readonly string[]): void {
    const random = this.#random;
    this.remark(about[0]?.startsWith("profiles.rules.") === true ? about : []);
    const tail = random.chance(3) ? ` # tail ${this.lines.length}` : "";
    const text = `${random.pick(["", "  ", "\t"])}${key}${random.pick([" = ", "=", "\t=  "])}${this.#value(value, false)}${tail}`;
    this.lines.push(...text.split("\n").map((line) => ({ text: line, about })));
  }

  /** A remark that is no header's is set off from the next one: without, it would be about it. */
  #blank(): void {
    const least = this.lines.at(-1)?.text.trim().startsWith("#") === true ? 1 : 0;
    for (let count = least + this.#random.below(3); count > 0; count -= 1)
      this.lines.push({ text: "", about: [] });
  }

  #key(name: string): string {
    return this.#random.pick([name, name, `"${name}"`, `'${name}'`]);
  }

  #value(value: unknown, isOneLine: boolean): string {
    const random = this.#random;
    if (Array.isArray(value) && !isOneLine && random.chance(2)) {
      return `[ # inner\n${value.map((item) => `  ${JSON.stringify(item)},\n`).join("")}]`;
    }
    if (typeof value !== "string") return JSON.stringify(value);
    if (isOneLine || value.includes("'") || random.chance(2)) return JSON.stringify(value);
    return value.includes("\n") ? `'''\n${value}'''` : `'${value}'`;
  }
}
