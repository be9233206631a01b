import { expect, test } from "vitest";
import { Args } from "../args.ts";
import type { Context } from "../context.ts";
import { fakePowers } from "../testing/fake-powers.ts";
import { list } from "./mcp-tools.ts";

/** What `mcp tools tracker` says, where these are the conditions of the rules in force. */
async function told(matches: readonly string[]): Promise<string> {
  const { powers, output, text } = fakePowers({ isTerminal: false });
  const tool = { name: "create", decision: "allow", permission: "default", pin: "pinned", title: null };
  const rules = matches.map((match) => ({ id: "profiles.rules.x", action: "block", enabled: true, match }));
  const client = {
    mcp: { tools: async () => [{ ...tool, description: "Creates an issue" }] },
    rules: { list: async () => ({ rules }) },
  };
  const context = { client: async () => client, powers, output, json: false } as unknown as Context;
  expect(await list(context, new Args(["tracker"], null, new Map()))).toBe(0);
  return text();
}

test("what a call would meet is said with the rules that look at its arguments", async () => {
  const table = await told(['mcp.tool_call.name == "other"']);
  expect(table).toMatch(/^TOOL .*\ncreate {2}allow .*\n$/);
  expect(await told(['mcp.request.arguments.title == "x"'])).toBe(
    `${table}capsem: CALL is that of a call without arguments; these rules look at them: profiles.rules.x (block)\n`,
  );
});
