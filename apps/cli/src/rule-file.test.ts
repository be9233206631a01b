import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { readRules } from "./rule-file.ts";
import { readTomlValue } from "./toml-value.ts";

const VALUES: [string, unknown][] = [
  ['k = "a \\"b\\" \\\\ \\u00e9 \\U0001F600 \\t"', 'a "b" \\ é 😀 \t'],
  ["k='C:\\n'", "C:\\n"],
  ["k = '''\nit's\n'''", "it's\n"],
  ['k = """\none\\\n   two"""', "onetwo"],
  ['k = """a\\\\\nb"""', "a\\\nb"],
  ["k = 1_000", 1000],
  ["k = -5", -5],
  ["k = true", true],
  ['"k" = false', false],
  ["k = 1.5", null],
  ["k = 0x10", null],
  ["k = [1]", null],
  ["k = 01", null],
  ['k = "\\q"', null],
  ['k = "\\ud800"', null],
  ["k = 2020-01-01", null],
  ["k =", null],
];

test.each(VALUES)("a value is read as TOML has it: %j", (statement, value) => {
  expect(readTomlValue(statement)).toEqual(value);
});

const RULE = '[profiles.rules.a]\naction = "block"\nmatch = "x"\n';

test("the rules of a file are read, or the one that is named", () => {
  expect(
    readRules(`# text\n[profiles]\npreset = "open"\n${RULE}priority = 20\nenabled = false\n`, undefined),
  ).toEqual([{ name: "a", fields: { action: "block", match: "x", priority: 20, enabled: false } }]);
  const two = `${RULE}[profiles.rules.b]\nname = "b"\naction = "ask"\nmatch = '''y'''\n`;
  expect(readRules(two, "b")).toEqual([{ name: "b", fields: { action: "ask", match: "y" } }]);
  expect(readRules(two, "profiles.rules.a").map(({ name }) => name)).toEqual(["a"]);
  expect(readRules(two, undefined).map(({ name }) => name)).toEqual(["a", "b"]);
  // Another one that makes no rule is nobody's concern.
  expect(readRules(`${RULE}[profiles.rules.b]\n`, "a")).toHaveLength(1);
});

const BAD: [string, string | undefined, RegExp][] = [
  ["", undefined, /no \[profiles\.rules\.NAME\] table/],
  ["[corp.rules.a]\naction = 'x'\n", undefined, /no \[profiles\.rules\.NAME\] table/],
  [RULE, "b", /no rule "b", but a/],
  [`${RULE}${RULE}`, undefined, /"a" is there twice/],
  [`${RULE}match = "y"\n`, undefined, /match is there twice/],
  [`${RULE}wrong = 1\n`, undefined, /no key "wrong"/],
  [`${RULE}reason = 1.5\n`, undefined, /reason is no text/],
  ["[profiles.rules.a]\nmatch = 'x'\n", undefined, /needs match and action/],
  [`${RULE}[profiles.rules.b]\n`, undefined, /rule "b" needs match and action/],
  ["[profiles.rules.a\n", undefined, /needed/],
];

test.each(BAD)("what makes no rule is said: %j", (text, name, words) => {
  expect(() => readRules(text, name)).toThrow(words);
});

test("no text makes anything but a rule or a refusal", () => {
  const own = readFileSync(new URL(import.meta.url), "utf8");
  const seed = Number(process.env.FUZZ_SEED ?? 20_250_102);
  let state = seed;
  const random = (below: number) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return state % below;
  };
  const parts = [
    "[profiles.rules.a]\n",
    'match = "',
    '"""',
    "'''",
    "action = 'x'\n",
    "\\",
    "\n",
    "=",
    ".",
    "#",
    '"',
  ];
  for (let round = 0; round < 2_000; round += 1) {
    let text = "";
    for (let count = random(14); count >= 0; count -= 1)
      text +=
        random(4) === 0 ? own.slice(random(own.length)).slice(0, random(9)) : parts[random(parts.length)];
    try {
      for (const { name, fields } of readRules(text, undefined))
        expect([typeof name, fields.match === undefined], text).toEqual(["string", false]);
    } catch (thrown) {
      expect((thrown as Error).message, `seed ${seed}: ${JSON.stringify(text)}`).toMatch(/^Cannot /);
    }
  }
});
