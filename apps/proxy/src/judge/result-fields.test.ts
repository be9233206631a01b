import { expect, test } from "vitest";
import { costInPasses } from "../../../../tests/support/cost.ts";
import { errorParts, resultParts } from "./result-fields.ts";

const text = (value: string) => ({ type: "text", text: value });
const contentOf = (result: unknown) =>
  resultParts(JSON.stringify(result), false).fields["mcp.response.content"];

test.each<[string, unknown, string]>([
  ["texts of content", { content: [text("a"), text("b")] }, "a\nb"],
  ["an embedded resource", { content: [{ type: "resource", resource: { uri: "x://1", text: "in" } }] }, "in"],
  ["the name of a link", { content: [{ type: "resource_link", uri: "x://1" }] }, "x://1"],
  ["a read resource", { contents: [{ uri: "x://1", text: "read" }] }, "read"],
  [
    "a prompt",
    { messages: [{ role: "user", content: text("hi") }, { content: [text("more")] }] },
    "hi\nmore",
  ],
  ["a completion", { completion: { values: ["one", "two"] } }, "one\ntwo"],
  ["an image", { content: [{ type: "image", data: "AAAA" }] }, ""],
  ["nothing", {}, ""],
])("%s", (_, result, expected) => {
  expect(contentOf(result)).toBe(expected);
});

test("what is in no field is said", () => {
  const whole = (result: unknown) => resultParts(JSON.stringify(result), false).isWhole;
  expect(whole({ content: [text("a")] })).toBe(true);
  expect(whole({ content: [text("a"), { type: "image", data: "AAAA" }] })).toBe(false);
  expect(whole({ content: [], structuredContent: { a: 1 } })).toBe(true);
  expect(whole({ content: [], structuredContent: { a: "x".repeat(200_000) } })).toBe(false);
});

test("structured content that is read is read strictly, and what cannot be is not passed on", () => {
  const structured = '{"structuredContent":{"a":1,"a":2}}';
  expect(() => resultParts(structured, true)).toThrow("stands twice");
  expect(resultParts(structured, false).fields["mcp.response.structured"]).toBeUndefined();
  expect(resultParts('{"structuredContent":{"a":1}}', true).fields["mcp.response.structured"]).toEqual({
    a: 1,
  });
});

test.each(["[]", "{", '{"content":[}', '{"content":[],"content":[]}', "{} {}", "nonsense"])(
  "%s is no result",
  (result) => {
    expect(() => resultParts(result, false)).toThrow();
    expect(() => errorParts(result)).toThrow();
  },
);

test.each(["x", "é", "\\", "\n", "\u0001", "𝄞", '"'])(
  "a long text of %j is cut at a whole character",
  (unit) => {
    for (let shift = 0; shift < 12; shift += 1) {
      const long = "a".repeat(shift) + unit.repeat(140_000);
      const { fields, isWhole } = resultParts(JSON.stringify({ content: [text(long)] }), false);
      const content = fields["mcp.response.content"] as string;
      expect(long.startsWith(content)).toBe(true);
      expect(content.length).toBeGreaterThan(20_000);
      expect([isWhole, fields["mcp.truncated"]]).toEqual([false, true]);
    }
  },
);

test("escapes that a server need not write are cut as whole ones too", () => {
  for (let shift = 0; shift < 12; shift += 1) {
    const literal = "a".repeat(shift) + "\\u0041".repeat(30_000);
    const { fields } = resultParts(`{"content":[{"type":"text","text":"${literal}"}]}`, false);
    expect((fields["mcp.response.content"] as string).replace(/^a*A+$/, "")).toBe("");
  }
});

test("content within content does not make the work grow with its depth", () => {
  const deep = `${'{"content":'.repeat(400)}"${"x".repeat(1_000_000)}"${"}".repeat(400)}`;
  expect(resultParts(deep, false).isWhole).toBe(false);
  expect(costInPasses(() => resultParts(deep, false), 3)).toBeLessThan(500);
});
