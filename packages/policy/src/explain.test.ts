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
                   profiles.rules.clean (priority 20): rewrite"
  `);
});

test("what would allow is what comes before the rule that decided, and nothing that it beats", () => {
  const user = `
[profiles.rules.tools]
action = "allow"
match = 'event.type == "mcp.tool_call" && mcp.server.name == "files"'
[profiles.rules.no-etc]
action = "block"
match = 'mcp.tool_call.name == "write"'
priority = 500
`;
  const corp = (priority: number) => `
[corp.rules.no-tools]
action = "block"
match = 'event.type == "mcp.tool_call"'
priority = ${priority}
[corp.rules.reads]
action = "allow"
match = 'mcp.tool_call.name == "read"'
priority = -500
`;
  const hints = (user: string, corp: string) =>
    decide(snapshotOf(user, corp), call).explanation.allowed.map(({ rule_id }) => rule_id);
  expect(hints(user, corp(-10))).toEqual(["corp.rules.reads"]);
  expect(hints(user, corp(-500))).toEqual([]);
  // Where nothing of the corporation's stands, the user's own rule allows this.
  expect(decide(snapshotOf(user), call)).toMatchObject({ action: "allow", rule_id: "profiles.rules.tools" });
  const other = user.replace('"files"', '"others"');
  expect(hints(other, "")).toEqual(["profiles.rules.tools"]);
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
