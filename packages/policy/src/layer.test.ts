import { expect, test } from "vitest";
import { renderFault } from "./fault.ts";
import { joinLayers, parseLayer } from "./layer.ts";
import type { RuleSource } from "./rule.ts";
import { layerOf } from "./testing/policies.ts";

function faultsOf(source: RuleSource, text: string, options = {}): string[] {
  const parsed = parseLayer(source, text, options);
  return parsed.kind === "ok" ? [] : parsed.faults.map((fault) => renderFault(fault, "f"));
}

/** A whole rule around one line that is tried. */
const around = (line: string) => `[profiles.rules.a]\naction = "block"\nmatch = "true"\n${line}\n`;

test("a condition that was read before is not looked into again", () => {
  const [first, again, other] = [
    around(""),
    around("priority = 20"),
    around("").replace("true", "1 < 2"),
  ].map((text) => layerOf("user", text).rules[0]);
  expect(again?.condition).toBe(first?.condition);
  expect(again?.guard).toBe(first?.guard);
  expect(again?.reads).toBe(first?.reads);
  expect(other?.guard).not.toBe(first?.guard);
});

test("a file gives its rules and settings", () => {
  const layer = layerOf(
    "user",
    `
    [profiles]
    preset = "open"
    rule_files = ["more.toml"]
    [limits]
    idle_secs = 60.5
    [profiles.rules.no-uploads]
    name = "no-uploads"
    action = "redact"
    match = '''
    http.method == "POST"
    '''
    priority = 0x20
    detection_level = "high"
    reason = "uploads are closed"
    enabled = false
    [profiles.rules]
    short = { action = "ask", match = "true" }
    `,
  );
  expect(layer.settings).toEqual(
    new Map<string, unknown>([
      ["profiles.preset", "open"],
      ["profiles.rule_files", ["more.toml"]],
      ["limits.idle_secs", 60.5],
    ]),
  );
  expect(layer.rules).toMatchObject([
    {
      id: "profiles.rules.no-uploads",
      action: "rewrite",
      priority: 32,
      detection: "high",
      reason: "uploads are closed",
      isEnabled: false,
      at: { line: 7, column: 6 },
    },
    { id: "profiles.rules.short", action: "ask", priority: 10, isEnabled: true },
  ]);
});

test.each<[string, RuleSource, string, string]>([
  ["TOML that is none", "user", 'x = "', "f:1:"],
  [
    "a key twice",
    "user",
    around('action = "ask"'),
    'f:4:1: key "action" is there already in [profiles.rules.a], on line 2 [syntax]',
  ],
  [
    "a key twice at the top",
    "user",
    "a = 1\nb = 2\na = 3\n",
    'f:3:1: key "a" is there already, on line 1 [syntax]',
  ],
  [
    "a table twice",
    "user",
    `${around("")}\n[ profiles.rules.a ] # again\n`,
    "table [profiles.rules.a] is there already, on line 1 [syntax]",
  ],
  [
    "a quote that ends the text",
    "user",
    around("").replace('"true"', '"process.command.matches("x")"'),
    `f:3:35: the text ends at the " before this: put it between ' and ', or ''' and ''' on several lines`,
  ],
  [
    "an apostrophe that ends the text",
    "user",
    around("reason = 'it's'"),
    "f:4:14: the text ends at the ' before this: put it between ''' and '''",
  ],
  ["a word behind a text", "user", around('reason = "x" y'), "f:4:14: Must be a newline [syntax]"],
  [
    "a pattern with a backslash",
    "user",
    around("").replace('"true"', `"process.command.matches('\\d')"`),
    "f:3:36: no such escape: put the text between ' and '",
  ],
  ["a colon for =", "user", around('reason: "x"'), "f:4:7: between a key and its value stands ="],
  ["quotes of a word processor", "user", around("reason = “x”"), "f:4:10: texts stand in straight quotes"],
  [
    "an unknown key",
    "user",
    around('acton = "ask"'),
    'f:4:1: a rule has no key "acton"; did you mean "action"? [unknown_key]',
  ],
  [
    "a legacy key",
    "user",
    around('condition = "true"'),
    'f:4:1: "condition" is written "match" here [legacy_key]',
  ],
  ["a table for a key", "user", around("reason.text = 1"), 'f:4:15: "reason" takes a text [bad_value]'],
  [
    "an unknown setting",
    "user",
    "[limits]\nidle_sec = 1\n",
    'did you mean "limits.idle_secs"? [unknown_key]',
  ],
  ["an unknown section", "user", "[things]\na = 1\n", 'f:1:2: no setting "things" [unknown_key]'],
  [
    "a legacy table",
    "user",
    '[rules.a]\naction = "block"\n',
    "is written as [profiles.rules.NAME] here [legacy_key]",
  ],
  ["a list of tables", "user", '[[profiles.rules]]\naction = "block"\n', "[unknown_key]"],
  ["a bad name", "user", '[profiles.rules.A]\naction = "block"\nmatch = "true"\n', "f:1:2: Cannot name rule"],
  ["an empty name", "user", '[profiles.rules.""]\naction = "block"\nmatch = "true"\n', "[bad_name]"],
  [
    "a long name",
    "user",
    `[profiles.rules.${"a".repeat(65)}]\naction = "block"\nmatch = "true"\n`,
    "[bad_name]",
  ],
  ["another name", "user", around('name = "b"'), 'f:4:8: name "b" is not that of its table, "a" [bad_name]'],
  ["no action", "user", '[profiles.rules.a]\nmatch = "true"\n', 'f:1:2: a rule needs "action" [missing_key]'],
  ["no match", "user", '[profiles.rules.a]\naction = "ask"\n', "[missing_key]"],
  ["an unknown action", "user", around("").replace("block", "deny"), 'f:2:10: "deny" is no action'],
  ["an action that is no text", "user", around("").replace('"block"', "1"), "f:2:10:"],
  [
    "a match that is no text",
    "user",
    around("").replace('"true"', "true"),
    'f:3:9: "match" takes a text [bad_value]',
  ],
  ["an unknown level", "user", around('detection_level = "huge"'), 'f:4:19: "huge" is no level'],
  ["a priority of others", "user", around("priority = 9"), "f:4:12: priority 9 is not in 10..1000"],
  ["a huge priority", "user", around("priority = 9223372036854775807"), "[bad_priority]"],
  ["a fraction as priority", "user", around("priority = 10.0"), "[bad_priority]"],
  ["a text as flag", "user", around('enabled = "yes"'), "[bad_value]"],
  ["a reason of two lines", "user", around('reason = "a\\nb"'), "[bad_value]"],
  ["a reason that turns text around", "user", around('reason = "a\\u202eb"'), "[bad_value]"],
  ["a date", "user", around("reason = 1979-05-27"), "[bad_value]"],
  [
    "the corporation's rules",
    "user",
    '[corp.rules.a]\naction = "block"\nmatch = "true"\n',
    "f:1:2: rules of this file are written [profiles.rules.NAME] [wrong_source]",
  ],
  [
    "built-in rules",
    "corp",
    '[default.a]\naction = "block"\nmatch = "true"\n',
    "[corp.rules.NAME] [wrong_source]",
  ],
  ["the user's rules", "corp", '[profiles.rules.a]\naction = "block"\n', "[wrong_source]"],
  ["the corporation's setting", "user", '[corp]\nrule_files = ["x"]\n', "for corp.toml only [wrong_source]"],
  [
    "a number out of range",
    "user",
    "[limits]\nrunning_max = 0\n",
    'f:2:15: "limits.running_max" takes a whole number from 1 to 256 [bad_value]',
  ],
  ["a number between steps", "user", "[limits]\ndefault_memory_gib = 0.3\n", "in steps of 0.25"],
  [
    "a word outside its list",
    "user",
    '[profiles]\npreset = "free"\n',
    "takes one of locked-down, developer, open",
  ],
  ["a file that is too long", "user", `#${"x".repeat(262_144)}`, "[too_large]"],
  [
    "a line of a megabyte",
    "user",
    around(`reason = "${"x".repeat(1_048_576)}"`),
    "f:1:1: the file is longer",
  ],
  [
    "a line that is nearly as long as a file may be",
    "user",
    around(`reason = "${"x".repeat(262_000)}"`),
    "f:1:1: a value is nested too deeply or too long [too_large]",
  ],
  [
    "a byte order mark",
    "user",
    `\ufeff${around("")}`,
    "f:1:1: the file begins with a byte order mark; save it as UTF-8 without one [syntax]",
  ],
  ["a byte order mark elsewhere", "user", around("\ufeff"), "f:4:1: "],
  ["a tab in a reason", "user", around('\treason\t=\t"a\tb"'), 'f:4:11: "reason" takes one line'],
  ["a fault behind tabs", "user", around("\tacton\t=\t1"), 'f:4:2: a rule has no key "acton"'],
  ["a fault behind letters of two units", "user", around("reason = '💥' x"), "f:4:15: "],
  [
    "a rule table that its keys wrote already",
    "user",
    '[profiles.rules]\na.action = "ask"\n[profiles.rules.a]\n',
    "f:3:17: table [profiles.rules.a] cannot be opened here: it, or one above it, has its keys already",
  ],
  [
    "an inline table that is opened again",
    "user",
    "[profiles]\nrules = {}\n[profiles.rules.a]\n",
    "f:3:11: table [profiles.rules.a] cannot be opened here",
  ],
  [
    "a section twice",
    "user",
    "[limits]\n[asks]\n[limits]\n",
    "f:3:2: table [limits] is there already, on line 1",
  ],
  [
    "a rule that is named as every object's prototype",
    "user",
    around("").replace("rules.a", "rules.__proto__"),
    'f:1:2: Cannot name rule "__proto__": it means something else [bad_name]',
  ],
  [
    "such a rule in dotted keys",
    "user",
    '[profiles.rules]\n__proto__.action = "ask"\n',
    "f:2:1: Cannot name rule",
  ],
  ["such a key of a rule", "user", around("__proto__ = 1"), 'f:4:1: a rule has no key "__proto__"'],
  ["such a table in a rule", "user", around("__proto__.action = 1"), 'f:4:1: a rule has no key "__proto__"'],
  ["such a section", "user", "[__proto__]\nx = 1\n", 'f:1:2: no setting "__proto__"'],
  ["such a setting", "user", "[limits]\n__proto__ = 1\n", 'f:2:1: no setting "limits.__proto__"'],
  ["lists that are too deep", "user", `a = ${"[".repeat(20_000)}${"]".repeat(20_000)}`, "[too_large]"],
])("%s is refused, with its place", (_, source, text, expected) => {
  expect(faultsOf(source, text).join("\n")).toContain(expected);
});

test.each([
  ["a basic text", `match = "http.host == \\"x\\" && http.hst == \\"y\\""`, "f:3:32"],
  ["a literal text", `match = 'http.host == "x" && http.hst == "y"'`, "f:3:30"],
  ["a text of several lines", `match = '''\n  http.host == "x"\n  && http.hst == "y"\n'''`, "f:5:6"],
  [
    "a basic text of several lines",
    `match = """\\\n   http.host == "x" \\\n  && http.hst == \\"y\\""""`,
    "f:5:6",
  ],
  ["an escaped letter", `match = "http.host == 'x' && \\u0068ttp.hst == 'y'"`, "f:3:30"],
  ["a letter of two units", `match = '"💥" == http.host && http.hst == "y"'`, "f:3:31"],
  [
    "a text of several lines, as Windows ends them",
    `match = '''\r\n  http.host == "x"\r\n  && http.hst == "y"\r\n'''`,
    "f:5:6",
  ],
  ["a text behind a tab", `\tmatch\t=\t'\thttp.host == "x" && http.hst == "y"'`, "f:3:32"],
])("a wrong field in %s is found where it stands", (_, line, place) => {
  const [fault] = faultsOf("user", `[profiles.rules.a]\naction = "block"\n${line}\n`);
  expect(fault).toContain(
    `${place}: field "http.hst" does not exist; did you mean "http.host"? [unknown_field]`,
  );
});

test.each([
  ["[profile.rules.a]", 'f:1:2: no table "profile.rules.a"; did you mean "profiles.rules.a"? [unknown_key]'],
  ["[profiles.rule.a]", 'f:1:2: no table "profiles.rule.a"; did you mean "profiles.rules.a"? [unknown_key]'],
  ["[user.rules.a]", 'f:1:2: no table "user.rules.a"; did you mean "profiles.rules.a"? [unknown_key]'],
  ["[limit]", 'f:1:2: no setting "limit"; did you mean "limits"? [unknown_key]'],
  ["[things.deep]", 'f:1:2: no setting "things.deep" [unknown_key]'],
])("%s has one fault, whatever is in it", (header, expected) => {
  const text = `${header}\naction = "block"\nmatch = "true"\nreason = { a = 1 }\n`;
  expect(faultsOf("user", text)).toEqual([expected]);
  expect(faultsOf("user", `${text}[asks]\nx = 1\n`)).toHaveLength(2);
});

test("every fault of a file is reported at once, in order and bounded, and nothing of it is taken", () => {
  const text = [
    '[profiles.rules.a]\naction = "deny"\nmatch = "http.hst == 1"\npriority = 1\n',
    '[profiles.rules.b]\naction = "allow"\nmatch = "true"\n',
    '[limits]\nidle_secs = "x"\n',
  ].join("");
  expect(faultsOf("user", text).map((fault) => fault.split(":").slice(0, 3).join(":"))).toEqual([
    "f:2:10",
    "f:3:10",
    "f:4:12",
    "f:9:13",
  ]);
  const many = Array.from({ length: 200 }, (_, n) => `[profiles.rules.r${n}]\naction = 1\n`).join("");
  expect(faultsOf("user", many)).toHaveLength(50);
});

test("tabs and the line ends of Windows do no harm in a file", () => {
  const text =
    "[limits]\r\n\tidle_secs\t=\t60\r\n[\tprofiles.rules.a\t]\r\n\taction = \"ask\"\r\nmatch\t= '\ttrue'\r\n";
  const layer = layerOf("user", text);
  expect(layer.settings.get("limits.idle_secs")).toBe(60);
  expect(layer.rules).toMatchObject([{ id: "profiles.rules.a", at: { line: 3, column: 3 } }]);
});

test("a rule file holds rules only", () => {
  expect(faultsOf("user", around(""), { rulesOnly: true })).toEqual([]);
  expect(faultsOf("user", "[limits]\nidle_secs = 1\n", { rulesOnly: true })[0]).toContain("[wrong_source]");
});

test("files of one author join into one layer, unless two of them have one rule", () => {
  const [a, b] = [layerOf("user", around("")), layerOf("user", around("").replace("rules.a", "rules.b"))];
  const joined = joinLayers([a, b]);
  expect(joined.kind === "ok" && joined.value.rules.map(({ name }) => name)).toEqual(["a", "b"]);
  expect(joinLayers([a, a])).toMatchObject({ kind: "refused", faults: [{ code: "duplicate_rule" }] });
});
