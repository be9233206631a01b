import { expect, test } from "vitest";
import { byArguments } from "./by-arguments.ts";

const tool = (...names: string[]) => ({
  argument_rules: names.map((name) => ({ rule_id: `profiles.rules.${name}`, action: "block" })),
});
const HEAD = "CALL is that of a call without arguments; these rules look at them: ";

test.each<[string, ReturnType<typeof tool>[], string | null]>([
  ["none", [tool(), tool()], null],
  ["one, of two tools", [tool("a"), tool("a")], `${HEAD}profiles.rules.a (block)`],
  [
    "many",
    [tool("a", "b", "c"), tool("d", "e")],
    `${HEAD}profiles.rules.a (block), profiles.rules.b (block), profiles.rules.c (block), 2 more`,
  ],
])("a list of tools says which rules look at arguments: %s", (_, tools, text) => {
  expect(byArguments(tools)).toBe(text);
});
