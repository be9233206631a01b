import { expect, test } from "vitest";
import { canonicalJson } from "./canonical-json.ts";

test.each([
  [{ b: 1, a: [true, null, { d: "x", c: 0.5 }] }, '{"a":[true,null,{"c":0.5,"d":"x"}],"b":1}'],
  [{ a: undefined, b: '\ud800"\n' }, '{"b":"\\ud800\\"\\n"}'],
  [[], "[]"],
  ["text", '"text"'],
])("one value has one text, whose keys are in order", (value, text) => {
  expect(canonicalJson(value)).toBe(text);
  expect(canonicalJson(JSON.parse(text))).toBe(text);
});
