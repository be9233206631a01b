import { expect, test } from "vitest";
import { Args } from "../args.ts";
import type { Context } from "../context.ts";
import { fakePowers } from "../testing/fake-powers.ts";
import { list } from "./mcp-tools.ts";

/** What `mcp tools tracker` says, where these rules look at arguments. */
async function told(rules: readonly string[]): Promise<string> {
  const { powers, output, text } = fakePowers({ isTerminal: false });
  const tool = { name: "create", decision: "allow", permission: "default", pin: "pinned", title: null };
  const argument_rules = rules.map((rule_id) => ({ rule_id, action: "block" }));
  const client = {
    mcp: { tools: async () => [{ ...tool, argument_rules, description: "Creates an issue" }] },
  };
  const context = { client: async () => client, powers, output, json: false } as unknown as Context;
  expect(await list(context, new Args(["tracker"], null, new Map()))).toBe(0);
  return text();
}

test("what a call would meet is said with the rules that look at its arguments", async () => {
  const table = await told([]);
  expect(table).toMatch(/^TOOL .*\ncreate {2}allow .*\n$/);
  expect(await told(["profiles.rules.x"])).toBe(
    `${table}capsem: CALL is that of a call without arguments; these rules look at them: profiles.rules.x (block)\n`,
  );
});
