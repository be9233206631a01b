import type { RuleInfo } from "@capsem/api";
import type { Client } from "@capsem/sdk";
import { expect, test } from "vitest";
import { byArguments } from "./by-arguments.ts";

const rule = (name: string, match: string, more: Partial<RuleInfo> = {}): RuleInfo => ({
  ...{ id: `profiles.rules.${name}`, name, source: "user", action: "block", match, reason: "" },
  ...{ detection_level: "none", priority: 10, enabled: true, file: null, line: null, is_locked: false },
  ...more,
});
const told = (rules: readonly RuleInfo[]) =>
  byArguments({ rules: { list: async () => ({ rules }) } } as unknown as Client, "tracker");

const HEAD = "CALL is that of a call without arguments; these rules look at them: ";
const ARGUMENT = 'mcp.request.arguments.title == "x"';

test.each<[string, RuleInfo[], string | null]>([
  ["none", [rule("a", 'mcp.tool_call.name == "create"')], null],
  ["one", [rule("a", ARGUMENT)], `${HEAD}profiles.rules.a (block)`],
  [
    "one of this server",
    [rule("a", `mcp.server.name == 'tracker' && ${ARGUMENT}`, { action: "ask" })],
    `${HEAD}profiles.rules.a (ask)`,
  ],
  ["one of another server", [rule("a", `mcp.server.name == "other" && ${ARGUMENT}`)], null],
  [
    "one of another server or any",
    [rule("a", `mcp.server.name == "other" || ${ARGUMENT}`)],
    `${HEAD}profiles.rules.a (block)`,
  ],
  ["one that is off", [rule("a", ARGUMENT, { enabled: false })], null],
  [
    "many",
    ["a", "b", "c", "d", "e"].map((name) => rule(name, ARGUMENT)),
    `${HEAD}profiles.rules.a (block), profiles.rules.b (block), profiles.rules.c (block), 2 more`,
  ],
])("a list of tools says which rules look at arguments: %s", async (_, rules, text) => {
  expect(await told(rules)).toBe(text);
});
