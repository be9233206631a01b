import { expect, test } from "vitest";
import { canonicalJson } from "./canonical-json.ts";

test.each([
  [{ b: 1, a: [true, null, { d: "x", c: 0.5 }] }, '{"a":[true,null,{"c":0.5,"d":"x"}],"b":1}'],
  [{ a: undefined, b: '\ud800"\n' }, '{"b":"\\ud800\\"\\n"}'],
  [{ 9: 1, 10: { z: [], b: undefined, a: [{ d: 1, c: 2 }] } }, '{"10":{"a":[{"c":2,"d":1}],"z":[]},"9":1}'],
  [[], "[]"],
  ["text", '"text"'],
])("one value has one text, whose keys are in order", (value, text) => {
  expect(canonicalJson(value)).toBe(text);
  expect(canonicalJson(JSON.parse(text))).toBe(text);
});
