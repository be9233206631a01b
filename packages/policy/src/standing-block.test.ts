import { expect, test } from "vitest";
import { type EventFields, securityEvent } from "./event/event.ts";
import type { FieldPath } from "./event/field-table.ts";
import { standingBlock } from "./standing-block.ts";
import { snapshotOf } from "./testing/policies.ts";

const UNSEEN = ["mcp.request.arguments"] as const satisfies readonly FieldPath[];
const rule = (name: string, match: string, action = "block", priority = 20) =>
  `[profiles.rules.${name}]\naction = "${action}"\npriority = ${priority}\nmatch = '''${match}'''\n`;
const LOCKED = `[profiles]\npreset = "locked-down"\n`;

function standing(rules: string, fields: EventFields = {}): string | undefined {
  const event = securityEvent(
    "mcp.tool_call",
    { event_id: "0123456789ab" },
    {
      "mcp.server.name": "files",
      "mcp.server.external": true,
      "mcp.server.pinned": false,
      "mcp.tool_call.name": "read",
      "mcp.request.arguments": {},
      ...fields,
    },
  );
  return standingBlock(snapshotOf(rules), event, UNSEEN)?.rule_id.replace(/^profiles\.rules\./, "");
}

const TOOL = 'mcp.tool_call.name == "read"';
const PATH = 'mcp.request.arguments.path == "/etc/passwd"';

test.each<[string, string, string | undefined]>([
  ["a rule that blocks the tool", rule("a", TOOL), "a"],
  ["a rule that blocks an argument", rule("a", PATH), undefined],
  ["a rule that blocks what has no such argument", rule("a", "!has(mcp.request.arguments.path)"), undefined],
  [
    "a rule that blocks the tool, after one that allows it",
    rule("b", TOOL) + rule("a", TOOL, "allow", 10),
    undefined,
  ],
  [
    "a rule that blocks the tool, after one that allows an argument",
    rule("b", TOOL) + rule("a", PATH, "allow", 10),
    undefined,
  ],
  ["the same, with one that asks", rule("b", TOOL) + rule("a", PATH, "ask", 10), undefined],
  [
    "a rule that blocks the tool, with an equal that allows an argument",
    rule("b", TOOL) + rule("a", PATH, "allow"),
    "b",
  ],
  [
    "a rule that blocks the tool, before one that allows an argument",
    rule("b", TOOL, "block", 10) + rule("a", PATH, "allow"),
    "b",
  ],
  [
    "an earlier one that allows an argument of another tool",
    rule("b", TOOL) + rule("a", `mcp.tool_call.name == "x" && ${PATH}`, "allow", 10),
    "b",
  ],
  ["an ask of the preset", LOCKED, undefined],
  ["a posture that blocks where a rule allows an argument", LOCKED + rule("a", PATH, "allow"), undefined],
  ["nothing that blocks", "", undefined],
])("%s", (_, rules, expected) => {
  expect(standing(rules)).toBe(expected);
});

test("a posture that blocks stands", () => {
  expect(standing(LOCKED, { "mcp.server.external": false })).toBe("posture.locked-down");
});
