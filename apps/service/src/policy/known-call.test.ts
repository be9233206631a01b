import { expect, test } from "vitest";
import { dryRun } from "./dry-run.ts";
import type { KnownTools } from "./known-call.ts";
import { useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();
const PINS: Readonly<Record<string, boolean>> = { "tracker/create": true, "tracker/changed": false };
const known: KnownTools = (server, tool) => {
  if (server === "local") return { isPinned: true };
  if (server === "unseen") return { isPinned: null };
  return server === "tracker" ? { isPinned: PINS[`${server}/${tool}`] ?? false } : null;
};

async function evaluated(fields: Record<string, unknown>, settings = "", type = "mcp.tool_call") {
  const policy = await temp({ "settings.toml": settings }).open();
  return dryRun(policy.snapshot(), { type, fields }, null, known);
}

const call = (server: string, tool: string, more = {}) => ({
  ...{ "mcp.server.name": server, "mcp.tool_call.name": tool },
  ...more,
});
const UNTAINTED = `label.confidentiality="public", label.integrity="trusted", label.sources=[]`;

test("a call of a tool that was approved is judged as a real one is, and the answer says what was filled in", async () => {
  const { decision, text } = await evaluated(call("tracker", "create"));
  expect(decision).toMatchObject({ action: "allow", rule_id: "default.declared_tools" });
  expect(text.split("\n").at(-1)).toBe(
    `  filled in    ${UNTAINTED}, mcp.method="tools/call", mcp.transport="framed", mcp.server.external=true, mcp.server.pinned=true, mcp.request.arguments={}`,
  );
  expect((await evaluated(call("local", "echo"))).text).toContain("mcp.server.external=false");
});

test.each<[string, ReturnType<typeof call>, string, string]>([
  ["a changed tool", call("tracker", "changed"), "default.changed_tool", "mcp.server.pinned=false"],
  ["a tool that was not there", call("tracker", "nope"), "default.changed_tool", "mcp.server.pinned=false"],
  [
    "a server that nobody has looked at",
    call("unseen", "x"),
    "default.changed_tool",
    "not known    mcp.server.pinned: nobody has looked at this server yet",
  ],
])("of %s the answer is that of its call", async (_, fields, rule, words) => {
  const { decision, text } = await evaluated(fields);
  expect(decision).toMatchObject({ action: "ask", rule_id: rule });
  expect(text).toContain(words);
});

test("what was given counts, and what is no call of a known tool is judged as it was given", async () => {
  const given = { "mcp.server.pinned": false, "label.integrity": "untrusted" };
  const { decision, text } = await evaluated(call("tracker", "create", given));
  expect(decision.rule_id).toBe("default.changed_tool");
  expect(text).not.toMatch(/pinned=|integrity=/);
  expect(text).toContain("mcp.server.external=true");
  for (const [fields, type] of [
    [call("stranger", "create"), "mcp.tool_call"],
    [{ "process.command": "ls" }, "process.exec"],
  ] as const) {
    expect((await evaluated(fields, "", type)).text).not.toContain("filled in");
  }
});
