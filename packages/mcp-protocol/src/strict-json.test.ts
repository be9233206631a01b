import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { strictJson, strictObject } from "./strict-json.ts";

function kindOfFailure(text: string): string {
  try {
    strictJson(text);
  } catch (thrown) {
    if (thrown instanceof Failure) return thrown.kind;
    throw thrown;
  }
  return "taken";
}

const nested = (depth: number) => `${"[".repeat(depth)}${"]".repeat(depth)}`;
const manyNames = (count: number) =>
  `{${Array.from({ length: count }, (_, at) => `"k${at}":${at}`).join(",")}}`;

const TAKEN: readonly string[] = [
  "null",
  " true ",
  "-0",
  "9007199254740991",
  "-9007199254740991",
  "0.1234567890123456789",
  "1e300",
  "1E-400",
  '"\\ud800"',
  '"\\u0000"',
  "[]",
  '{"a":{"a":1},"b":{"a":1}}',
  '{"__proto__":1,"constructor":2}',
  nested(64),
  manyNames(500),
];

test("what every parser reads alike is taken", () => {
  for (const text of TAKEN) expect(strictJson(text), text.slice(0, 60)).toEqual(JSON.parse(text));
});

test("a lone surrogate stays what it was", () => {
  expect(strictJson('"\\ud800x"')).toBe("\ud800x");
});

const REFUSED: readonly (readonly [string, string])[] = [
  ['{"a":1,"a":1}', "invalid_request"],
  ['{"a":1,"\\u0061":2}', "invalid_request"],
  ['{"\\u0061":1,"a":2}', "invalid_request"],
  ['{"x":[{"a":1,"b":2,"a":3}]}', "invalid_request"],
  ['{"":1,"":2}', "invalid_request"],
  ['{"__proto__":1,"__proto__":2}', "invalid_request"],
  [`${manyNames(20).slice(0, -1)},"k3":0}`, "invalid_request"],
  ["9007199254740992", "invalid_request"],
  ["-9007199254740993", "invalid_request"],
  ["[12345678901234567890]", "invalid_request"],
  ["1e999", "invalid_request"],
  ["-1e309", "invalid_request"],
  [`1${"0".repeat(400)}`, "invalid_request"],
  [nested(65), "invalid_request"],
  [nested(100_000), "invalid_request"],
  ['{"a":'.repeat(100_000), "invalid_request"],
  ["NaN", "parse_error"],
  ["Infinity", "parse_error"],
  ["-Infinity", "parse_error"],
  ["+1", "parse_error"],
  [".5", "parse_error"],
  ["1.", "parse_error"],
  ["0x10", "parse_error"],
  ["01", "parse_error"],
  ["[1,]", "parse_error"],
  ['{"a":1,}', "parse_error"],
  ["[1 2]", "parse_error"],
  ["1 2", "parse_error"],
  ["tru", "parse_error"],
  ["nullx", "parse_error"],
  ['"\t"', "parse_error"],
  ['"\\', "parse_error"],
  ['"\\u00', "parse_error"],
  ["", "parse_error"],
];

test("what two parsers may read differently is refused, and so is what is no JSON", () => {
  for (const [text, kind] of REFUSED) expect(kindOfFailure(text), text.slice(0, 60)).toBe(kind);
});

test("an object is asked for where only an object will do", () => {
  expect(strictObject('{"a":[1]}')).toEqual({ a: [1] });
  for (const text of ["[]", "null", "1", '"{}"']) expect(() => strictObject(text)).toThrow("not an object");
});

test("the words about a hostile name stay short", () => {
  const name = "n".repeat(100_000);
  expect(() => strictJson(`{"${name}":1,"${name}":2}`)).toThrow(/^.{1,160}$/s);
});
