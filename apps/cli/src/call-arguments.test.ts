import { expect, test } from "vitest";
import { givenArguments, needsSchema, typedArguments } from "./call-arguments.ts";

const DEFINITION = {
  inputSchema: {
    properties: {
      text: { type: "string" },
      count: { type: "integer" },
      either: { type: ["string", "number"] },
      maybe: { anyOf: [{ type: "string" }, { type: "null" }] },
      any: {},
      odd: "no schema",
    },
  },
};

const TYPED: [string, unknown][] = [
  ["text=hello", "hello"],
  ["text=5", "5"],
  ["text=true", "true"],
  ["text=null", "null"],
  ['text={"a": 1}', '{"a": 1}'],
  ['text="5"', "5"],
  ["text=1e3", "1e3"],
  ["count=5", 5],
  ["count=five", "five"],
  ["either=5", 5],
  ["either=true", "true"],
  ["maybe=5", "5"],
  ["maybe=null", null],
  ["any=5", 5],
  ["odd=5", 5],
  ["other=5", 5],
  ["constructor=5", 5],
  ["a=b=c", "b=c"],
];
test.each(TYPED)("--arg %s is what its tool takes there", (word, value) => {
  const typed = typedArguments(givenArguments([word]), DEFINITION);
  expect(Object.values(typed)).toEqual([value]);
});

test.each([[undefined], [null], ["text"], [{ inputSchema: [] }], [{ inputSchema: { properties: null } }]])(
  "a tool that says nothing usable of itself (%j) is given what JSON says",
  (definition) => {
    expect(typedArguments(givenArguments(["text=5"]), definition)).toEqual({ text: 5 });
  },
);

test("only what may be meant otherwise is looked up", () => {
  expect(needsSchema(givenArguments(["text=hello", 'n="5"']))).toBe(false);
  expect(needsSchema(givenArguments(["text=hello", "n=5"]))).toBe(true);
});

test("an argument is given once, and with its name", () => {
  expect(() => givenArguments(["secs=1", "secs=2"])).toThrow("Cannot use --arg secs twice");
  expect(() => givenArguments(["x"])).toThrow("KEY=VALUE is needed");
  expect(Object.keys(givenArguments(["__proto__=1"]))).toEqual(["__proto__"]);
});
