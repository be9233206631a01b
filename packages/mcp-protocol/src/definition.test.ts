import { expect, test } from "vitest";
import { canonicalDefinition } from "./definition.ts";

const TOOL = {
  name: "echo",
  title: "Echo",
  description: "Says\nit again",
  inputSchema: { type: "object", properties: { b: { type: "string" }, a: { maximum: 1 } }, required: [] },
  outputSchema: { type: "object" },
  annotations: { readOnlyHint: true },
  icons: [{ src: "data:," }],
  _meta: { "x/y": [1, "two", null] },
};
const text = JSON.stringify(TOOL);

test("a definition is its pinned fields, sorted, one a line", () => {
  expect(canonicalDefinition(text, "Use it")).toBe(`{
  "_meta": {
    "x/y": [
      1,
      "two",
      null
    ]
  },
  "annotations": {
    "readOnlyHint": true
  },
  "description": "Says\\nit again",
  "icons": [
    {
      "src": "data:,"
    }
  ],
  "inputSchema": {
    "properties": {
      "a": {
        "maximum": 1
      },
      "b": {
        "type": "string"
      }
    },
    "required": [],
    "type": "object"
  },
  "instructions": "Use it",
  "name": "echo",
  "outputSchema": {
    "type": "object"
  },
  "title": "Echo"
}`);
});

test("the order of members, spaces and escapes make no difference", () => {
  const base = canonicalDefinition(text, null);
  const turned = `{ "_meta":{"x/y":[1,"two",null]} ,\n"icons":[{"src":"data:,"}],"annotations":{"readOnlyHint":true},
    "outputSchema":{"type":"object"},"inputSchema":{"required":[ ],"properties":{"a":{"maximum":1},"b":{"type":"string"}},
    "type":"object"},"description":"Says\\u000ait again","title":"\\u0045cho","n\\u0061me":"echo"}`;
  expect(canonicalDefinition(turned, null)).toBe(base);
});

test("every pinned field makes a difference, at any depth, and so do the instructions", () => {
  const base = canonicalDefinition(text, "i");
  const others = [
    { ...TOOL, name: "echo2" },
    { ...TOOL, title: undefined },
    { ...TOOL, description: "Says it again" },
    { ...TOOL, inputSchema: { ...TOOL.inputSchema, properties: { b: {}, a: { maximum: 1 } } } },
    { ...TOOL, outputSchema: { type: "array" } },
    { ...TOOL, annotations: { readOnlyHint: false } },
    { ...TOOL, icons: [] },
    { ...TOOL, _meta: { "x/y": [1, "two", null, null] } },
  ];
  const seen = new Set(others.map((tool) => canonicalDefinition(JSON.stringify(tool), "i")));
  seen.add(canonicalDefinition(text, null));
  seen.add(canonicalDefinition(text, ""));
  seen.add(canonicalDefinition(text, "j"));
  expect(seen.size).toBe(others.length + 3);
  expect(seen.has(base)).toBe(false);
});

test("a number keeps its digits, however many", () => {
  const wide = '{"name":"a","inputSchema":{"maximum":18446744073709551615}}';
  const near = '{"name":"a","inputSchema":{"maximum":18446744073709551616}}';
  expect(canonicalDefinition(wide, null)).toContain("18446744073709551615");
  expect(canonicalDefinition(wide, null)).not.toBe(canonicalDefinition(near, null));
});

test("a field that is not pinned may change", () => {
  expect(canonicalDefinition('{"name":"a","x":1}', null)).toBe(
    canonicalDefinition('{"name":"a","x":2}', null),
  );
});

test("what could be read in two ways, or is too deep, has no form", () => {
  const deep = `{"name":"a","inputSchema":${'{"a":'.repeat(70)}1${"}".repeat(70)}}`;
  for (const bad of [
    '{"name":"a","name":"b"}',
    '{"name":"a","inputSchema":{"x":{"type":1,"t\\u0079pe":2}}}',
    deep,
    "[]",
    "",
    '{"name":"a"',
  ]) {
    expect(() => canonicalDefinition(bad, null), bad.slice(0, 60)).toThrow("Cannot read");
  }
});
