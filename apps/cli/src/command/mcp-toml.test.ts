import { describe, expect, it } from "vitest";
import { tomlFormat } from "./mcp-toml.ts";

const entry = { command: "/node", args: ["/mcp.cjs", 'a "b" \\ c'] };
const keys = ["mcp_servers", "capsem"];
const PAIRS = 'command = "/node"\nargs = ["/mcp.cjs", "a \\"b\\" \\\\ c"]';
const set = (text: string | null) => tomlFormat.set(text, keys, entry);
const TABLE = `[mcp_servers.capsem]\n${PAIRS}\ntool_timeout_sec = 600\n`;

const FULL = `# My settings
model = "x" # the model
list = [
  "[mcp_servers.capsem]", # no header
  [1, 2],
]
text = """
[mcp_servers.capsem]
command = "no"
"""
when = 1979-05-27 07:32:00

[mcp_servers."other"]
command = 'x'

[projects."/a.b"]
trust_level = "trusted"
`;

describe("a client's TOML", () => {
  it("gets a table of its own at its end", () => {
    expect(set(null)).toBe(TABLE);
    expect(set("")).toBe(TABLE);
    expect(set("a = 1")).toBe(`a = 1\n\n${TABLE}`);
    expect(set(FULL)).toBe(`${FULL}\n${TABLE}`);
  });

  it("stays as it is when the table is there", () => {
    for (const text of [null, FULL]) expect(set(set(text))).toBe(set(text));
  });

  it("keeps comments and other keys of the table that it changes", () => {
    const before = `${FULL}
# Capsem
[ "mcp_servers" . capsem ] # here
# before
command = "old" # why
enabled = false
args = [
  "a", # one
]
[mcp_servers.capsem.env]
A = "1"
`;
    const after = set(before);
    const args = '["/mcp.cjs", "a \\"b\\" \\\\ c"]';
    const changed = before.replace('"old"', '"/node"').replace('args = [\n  "a", # one\n]', `args = ${args}`);
    expect(after).toBe(changed);
    expect(set(after)).toBe(after);
    expect(tomlFormat.remove(after, keys)).toBe(FULL);
  });

  it("adds what a table of ours lacks right below its header", () => {
    expect(set("[mcp_servers.capsem]\nenabled = true\n[b]\n")).toBe(
      `[mcp_servers.capsem]\n${PAIRS}\nenabled = true\n[b]\n`,
    );
  });

  it("loses the table and nothing else", () => {
    expect(tomlFormat.remove(set(FULL), keys)).toBe(FULL);
    expect(tomlFormat.remove(FULL, keys)).toBe(FULL);
    expect(tomlFormat.remove(`${TABLE}\n# next\n[b]\nc = 1\n`, keys)).toBe("# next\n[b]\nc = 1\n");
    expect(tomlFormat.remove(null, keys)).toBe(null);
  });

  it.each([
    'mcp_servers = { capsem = { command = "x" } }',
    'mcp_servers.capsem.command = "x"',
    '[mcp_servers]\ncapsem = { command = "x" }',
    '[mcp_servers]\ncapsem.command = "x"',
  ])("that has the entry inline is refused: %s", (text) => {
    expect(() => set(text)).toThrow(/inline/);
  });

  it.each([
    "[mcp_servers.capsem",
    "a",
    "a =",
    "a = [1",
    'a = "x',
    "a = 'x\n'",
    'a = """x',
    "a = 1 b = 2",
    "[a]]",
    "= 1",
    "[mcp_servers.capsem]\n[mcp_servers.capsem]",
  ])("that is broken is refused: %s", (text) => {
    expect(() => set(text)).toThrow(/not TOML|twice/);
  });
});
