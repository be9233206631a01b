import { describe, expect, it } from "vitest";
import { jsonFormat } from "./mcp-json.ts";

const entry = { command: "/node", args: ["/mcp.cjs"] };
const keys = ["mcpServers", "capsem"];
const format = jsonFormat({ extra: {}, allowsComments: false });
const commented = jsonFormat({ extra: {}, allowsComments: true });

describe("a client's JSON", () => {
  it.each<[string, string | null, string]>([
    [
      "no file",
      null,
      '{\n  "mcpServers": {\n    "capsem": {\n      "command": "/node",\n      "args": [\n        "/mcp.cjs"\n      ]\n    }\n  }\n}\n',
    ],
    [
      "an empty object",
      "{}",
      '{\n  "mcpServers": {\n    "capsem": {\n      "command": "/node",\n      "args": [\n        "/mcp.cjs"\n      ]\n    }\n  }\n}',
    ],
    ["one line", '{"a":1.0}', '{"a":1.0,"mcpServers":{"capsem":{"command":"/node","args":["/mcp.cjs"]}}}'],
    [
      "tabs and another server",
      '{\n\t"big": 12345678901234567890,\n\t"mcpServers": {\n\t\t"other": {"url": "x"}\n\t},\n\t"2": 0, "1": 0\n}\n',
      '{\n\t"big": 12345678901234567890,\n\t"mcpServers": {\n\t\t"other": {"url": "x"},\n\t\t"capsem": {\n\t\t\t"command": "/node",\n\t\t\t"args": [\n\t\t\t\t"/mcp.cjs"\n\t\t\t]\n\t\t}\n\t},\n\t"2": 0, "1": 0\n}\n',
    ],
    [
      "an empty list of servers",
      '{\n  "mcpServers": {}\n}\n',
      '{\n  "mcpServers": {\n    "capsem": {\n      "command": "/node",\n      "args": [\n        "/mcp.cjs"\n      ]\n    }\n  }\n}\n',
    ],
  ])("gets the entry beside all else: %s", (_, before, after) => {
    const set = format.set(before, keys, entry);
    expect(set).toBe(after);
    expect(JSON.parse(set)).toMatchObject({ mcpServers: { capsem: entry } });
    expect(format.set(set, keys, entry)).toBe(set);
  });

  it("keeps what the user added to the entry", () => {
    const before = '{"mcpServers":{"capsem":{"command":"old","args":[],"trust":true}}}';
    expect(JSON.parse(format.set(before, keys, entry))).toEqual({
      mcpServers: { capsem: { ...entry, trust: true } },
    });
  });

  it("keeps comments where the client allows them", () => {
    const before = '{\n  // mine\n  "theme": "x", /* also\n mine */\n  "mcpServers": { // servers\n  }\n}\n';
    const set = commented.set(before, keys, entry);
    for (const comment of ["// mine\n", "/* also\n mine */", "// servers\n"]) expect(set).toContain(comment);
    expect(commented.set(set, keys, entry)).toBe(set);
    expect(() => format.set(before, keys, entry)).toThrow(/not JSON, line 2: a comment/);
  });

  it.each<[string, string]>([
    ["first", '{"mcpServers":{"capsem":{},"b":1}}'],
    ["last", '{"mcpServers":{"b":1,"capsem":{}}}'],
    ["between", '{"mcpServers":{"a":1,"capsem":{},"b":1}}'],
    ["alone", '{"mcpServers":{"capsem":{}}}'],
  ])("loses the entry and nothing else: %s", (_, before) => {
    const after = format.remove(before, keys) ?? "";
    const expected = JSON.parse(before) as { mcpServers: Record<string, unknown> };
    delete expected.mcpServers.capsem;
    expect(JSON.parse(after)).toEqual(expected);
    expect(format.remove(after, keys)).toBe(after);
  });

  it.each([
    "{",
    '{"a":}',
    '{"a":1,}',
    '{"a":1} x',
    "{'a':1}",
    '{"a":01}',
    '{"a":"\n"}',
    '{"a" 1}',
    "[1]",
    '{"mcpServers":[]}',
    '{"mcpServers":null}',
    "\ufeff{}",
    `${'{"a":'.repeat(300)}1${"}".repeat(300)}`,
  ])("that is broken is refused: %s", (text) => {
    expect(() => format.set(text, keys, entry)).toThrow(/not JSON|not an object/);
  });

  it("is read as JSON.parse reads it, whatever is changed in it", () => {
    const good = '{"a": [1, -2.5e3, true, null, "x\\u0041\\n"], "b": {"c": {}}, "d": ""}';
    for (let at = 0; at < good.length; at += 1)
      for (const char of ["", '"', "{", "}", "[", "]", ",", ":", "\\", "1", "x", " "]) {
        const text = good.slice(0, at) + char + good.slice(at + 1);
        let parsed: unknown = null;
        try {
          parsed = JSON.parse(text);
        } catch {
          expect(() => format.set(text, keys, entry), text).toThrow();
          continue;
        }
        const set = JSON.parse(format.set(text, keys, entry)) as Record<string, unknown>;
        delete set.mcpServers;
        expect(set, text).toEqual(parsed);
      }
  });
});
