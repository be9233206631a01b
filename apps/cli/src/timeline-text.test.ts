import type { TimelineEntry } from "@capsem/api";
import { expect, test } from "vitest";
import { timelineText } from "./timeline-text.ts";

function entry(layer: TimelineEntry["layer"], more: Partial<TimelineEntry> = {}): TimelineEntry {
  return {
    ...{ time: "2025-01-02T03:05:00.000Z", layer, event_id: "1", trace_id: null, requester: "user uid 0" },
    ...{ title: "x", decision: "allow", rule_id: "profiles.rules.r", reason: null, outcome: "done" },
    ...{ duration_ms: 1, details: {} },
    ...more,
  };
}

const ASK = { ask_id: "ask_abcdefghijklmnop", resolver: null, note: null, scope: null };

const ROWS: [string, TimelineEntry, string][] = [
  ["a command that failed", entry("exec", { title: "make", details: { exit_code: 2 } }), "make  (exit 2)"],
  [
    "a call of a tool, with what it was given",
    entry("tool", { title: "files__read", details: { arguments: '{"path":"/a"}' } }),
    'files__read {"path":"/a"}',
  ],
  [
    "a call of a tool that was given nothing",
    entry("tool", { title: "files__read", details: { arguments: "{}" } }),
    "files__read",
  ],
  [
    "a tool that says that it failed, whatever it was given",
    entry("tool", {
      title: "files__read",
      details: { arguments: `{"path":"${"x".repeat(99)}"}`, error: "tool_error" },
    }),
    `files__read {"path":"${"x".repeat(50)}…  (the tool says that it failed)`,
  ],
  ["why a VM ended", entry("lifecycle", { title: "stop", details: { detail: "idle" } }), "stop  (idle)"],
  ["a file", entry("file", { title: "import /a", details: { bytes: 7 } }), "import /a  (7 bytes)"],
  [
    "what a rule refused",
    entry("exec", { title: "git push", decision: "ask" }),
    "git push  [ask by profiles.rules.r]",
  ],
  [
    "an ask that waits, with its act",
    entry("ask", { title: "ask pending", details: { ...ASK, act: "git push" } }),
    "abcdef ask pending: git push",
  ],
  [
    "an ask whose title has its act",
    entry("ask", { title: "ask pending: git push", details: { ...ASK, act: "git push" } }),
    "abcdef ask pending: git push",
  ],
  [
    "an answer with its reason",
    entry("ask", { title: "ask denied: x", details: { ...ASK, resolver: "gateway", note: "not now" } }),
    "abcdef ask denied: x, by gateway: not now",
  ],
  [
    "an answer for more than once",
    entry("ask", { title: "ask approved: x", details: { ...ASK, resolver: "me", scope: "vm" } }),
    "abcdef ask approved: x, by me (vm)",
  ],
  [
    "a rule that matched",
    entry("rule", {
      title: "r on file.import",
      details: { act: "import /a", action: "block", detection: "high" },
    }),
    "r on file.import: import /a  [block, detection high]",
  ],
  [
    "a rule that detects nothing",
    entry("rule", { title: "r on process.exec", details: { action: "block", detection: "none" } }),
    "r on process.exec  [block]",
  ],
  [
    "a setting",
    entry("settings", { title: "limits.idle_secs", details: { verb: "set", before: "1", after: "2" } }),
    "set limits.idle_secs: 1 → 2",
  ],
  [
    "a setting that was not there",
    entry("settings", { title: "k", details: { before: null, after: "a\n  b" } }),
    "k: - → a b",
  ],
  [
    "a rule that is long",
    entry("settings", { title: "k", details: { before: "x".repeat(99), after: null } }),
    `k: ${"x".repeat(59)}… → -`,
  ],
];
test.each(ROWS)("%s is told with what a person asks of it", (_, row, text) => {
  expect(timelineText(row)).toBe(text);
});
