import { expect, test } from "vitest";
import { argumentRules, mayConcernTool } from "./argument-rules.ts";
import { parseLayer } from "./layer.ts";

const ARGUMENT = 'mcp.request.arguments.title == "x"';

test.each<[string, string, boolean]>([
  ["looks at no argument", 'mcp.tool_call.name == "create"', false],
  ["only has arguments in a text", 'mcp.tool_call.name == "mcp.request.arguments"', false],
  ["looks at one", ARGUMENT, true],
  ["asks whether there are any", "has(mcp.request.arguments)", true],
  ["is of this server", `mcp.server.name == 'tracker' && ${ARGUMENT}`, true],
  ["is of one of several servers", `mcp.server.name in ["other", "tracker"] && ${ARGUMENT}`, true],
  ["is of another server", `mcp.server.name == "other" && ${ARGUMENT}`, false],
  ["is of any server but this", `mcp.server.name != "tracker" && ${ARGUMENT}`, true],
  ["is of another server or any", `mcp.server.name == "other" || ${ARGUMENT}`, true],
  ["is of another tool", `"drop" == mcp.tool_call.name && ${ARGUMENT}`, false],
  ["is of another event", `event.type == "mcp.event" && ${ARGUMENT}`, false],
])("a rule that %s", (_, match, isFound) => {
  const text = `[profiles.rules.a]\naction = "block"\nmatch = '''${match}'''\n`;
  const rulesOf = (more: string) => {
    const parsed = parseLayer("user", `${text}${more}`);
    if (parsed.kind !== "ok") throw new Error(JSON.stringify(parsed.faults));
    return argumentRules(parsed.value.rules).filter((rule) => mayConcernTool(rule, "tracker", "create"));
  };
  expect(rulesOf("").length).toBe(isFound ? 1 : 0);
  expect(rulesOf("enabled = false\n")).toEqual([]);
});
