import { expect, test } from "vitest";
import { type Decision, decide } from "./decide.ts";
import { securityEvent } from "./event/event.ts";
import { renderDecision } from "./explain.ts";
import { snapshotOf } from "./testing/policies.ts";

const call = securityEvent(
  "mcp.tool_call",
  { event_id: "0123456789ab" },
  {
    "mcp.server.name": "files",
    "mcp.tool_call.name": "write",
    "mcp.request.arguments": { path: ["/etc"] },
  },
);

test("what the posture does is said in one line, and what would be allowed in the next ones", () => {
  expect(renderDecision(decide(snapshotOf(""), call))).toMatchInlineSnapshot(`
    "ask: no rule matches; the posture "developer" for mcp.tool_call
      decided by   posture.developer (no rule decides, so the posture does)
      would allow  default.declared_tools: event.type == "mcp.tool_call" && mcp.server.pinned"
  `);
});

test("levels, faults and changes are seen beside the rules that they come from", () => {
  const snapshot = snapshotOf(`
[profiles.rules.paths]
action = "allow"
match = 'mcp.request.arguments.path.startsWith("/home/")'
detection_level = "high"
[profiles.rules.clean]
action = "rewrite"
match = "true"
priority = 20
`);
  expect(renderDecision(decide(snapshot, call))).toMatchInlineSnapshot(`
    "block: rule "profiles.rules.paths" cannot be evaluated: startsWith of what is no text (detection: high)
      decided by   profiles.rules.paths (the only rule that decides)
      matched      profiles.rules.paths (priority 10, detection high): block, because it cannot be evaluated: startsWith of what is no text
                   profiles.rules.clean (priority 20): rewrite
      would allow  profiles.rules.paths: mcp.request.arguments.path.startsWith("/home/")
                   default.declared_tools: event.type == "mcp.tool_call" && mcp.server.pinned"
  `);
});

test("nothing of a condition moves the cursor, and a long one is cut", () => {
  const decision: Decision = {
    ...decide(snapshotOf(""), call),
    explanation: {
      matched: [],
      why: "no_rule",
      allowed: [{ rule_id: "default.x", match: `a ==\n  "\u001b[2J\u202e\ud800" || ${"b".repeat(500)}` }],
    },
  };
  const [, , line = ""] = renderDecision(decision).split("\n");
  expect(line).toBe(`  would allow  default.x: a == "?[2J??" || ${"b".repeat(160 - 17)}…`);
});

test("a decision is plain data: it is the same after a way through JSON", () => {
  const decision = decide(snapshotOf(""), call);
  expect(JSON.parse(JSON.stringify(decision))).toEqual(decision);
});
