import type { SecurityEntry } from "@capsem/api";
import { expect, test } from "vitest";
import { eventRow, eventText } from "./event-text.ts";
import { fakePowers } from "./testing/fake-powers.ts";

function entry(fields: Record<string, unknown>, more: Partial<SecurityEntry> = {}): SecurityEntry {
  return {
    ...{ time: "2025-01-02T03:05:00.000Z", event_id: "1", trace_id: null, requester: "me", client: null },
    ...{ type: "process.exec", action: "block", rule_id: "profiles.rules.r", reason: "", detection: "none" },
    ...{ policy_digest: "d", matched: [], is_redacted: false, event: { type: "process.exec", fields } },
    ...more,
  };
}

const { powers } = fakePowers({ isTerminal: false });
const last = (row: ReturnType<typeof eventRow>) => row.at(-1);

const ROWS: [string, SecurityEntry, string][] = [
  [
    "what all events of its VM have is left out",
    entry({
      ...{ "event.type": "process.exec", "vm.id": "vm_a", "vm.name": "dev", "vm.image": "d" },
      ...{ "process.valid": true, "process.truncated": false, "process.exec.id": "job_a" },
      ...{ "process.exec.user": "user", "process.exec.cwd": "/workspace", "process.exec.exit_code": 0 },
      ...{ "process.command": "ls", "process.exec.stderr": "", "process.exec.env_names": [] },
    }),
    'process.command="ls"',
  ],
  [
    "what is not as usual is there",
    entry({ "process.exec.user": "root", "process.truncated": true, "process.exec.exit_code": 2 }),
    'process.exec.user="root"  process.truncated=true  process.exec.exit_code=2',
  ],
  [
    "a file is its path",
    entry({ "file.import.path": "/a/b.txt", "file.import.name": "b.txt", "file.import.ext": "txt" }),
    'file.import.path="/a/b.txt"',
  ],
  ["a reason of its own is said", entry({}, { reason: "not here" }), "(not here)"],
  ["a reason that names the rule again is not", entry({}, { reason: 'rule "profiles.rules.r"' }), ""],
  [
    "a posture has no reason of its own",
    entry({}, { rule_id: "posture.open", reason: "no rule matches" }),
    "",
  ],
  [
    "a tool's call is its server, its name and what it is given",
    entry({
      ...{ "mcp.method": "tools/call", "mcp.transport": "framed", "mcp.request.id": "7" },
      ...{ "mcp.tool_call.id": "call_a", "mcp.server.name": "tracker", "mcp.server.pinned": true },
      ...{ "mcp.tool_call.name": "search", "mcp.request.arguments": { q: "x" }, "process.name": "node" },
      ...{ "label.confidentiality": "public", "label.integrity": "trusted", "label.sources": [] },
    }),
    'mcp.server.name="tracker"  mcp.tool_call.name="search"  mcp.request.arguments={"q":"x"}  process.name="node"',
  ],
  [
    "a changed definition and a doubtful label are there",
    entry({ "mcp.server.pinned": false, "label.integrity": "untrusted" }),
    'mcp.server.pinned=false  label.integrity="untrusted"',
  ],
  ["a long value is cut", entry({ a: "x".repeat(500) }), `a="${"x".repeat(118)}…`],
];
test.each(ROWS)("of an event %s", (_, given, text) => {
  expect(last(eventRow(given, powers))).toBe(text);
});

test("whole, an event has every field and every rule that matched, and steers no terminal", () => {
  const matched = [
    { rule_id: "profiles.rules.r", action: "block", priority: 10, detection: "none", fault: null },
    { rule_id: "default.x", action: "allow", priority: 1001, detection: "none", fault: null },
  ];
  const given = entry({ "vm.id": "vm_a", b: "\u001b" }, { matched, is_redacted: true, detection: "high" });
  const [, ...lines] = eventText(given, (text) => text).split("\n");
  expect(lines).toEqual([
    '    vm.id = "vm_a"',
    '    b = "\\u001b"',
    "    also matched default.x: allow at 1001",
    "    secrets in it were replaced",
    "",
  ]);
});
