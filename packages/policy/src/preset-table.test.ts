import { expect, test } from "vitest";
import { decide } from "./decide.ts";
import { type EventFields, securityEvent } from "./event/event.ts";
import type { EventType } from "./event/event-table.ts";
import { type Label, label, labelFields } from "./label.ts";
import type { PresetName } from "./preset-names.ts";
import { snapshotOf } from "./testing/policies.ts";

const ID = { event_id: "0123456789ab" };
const SNAPSHOTS = {
  "locked-down": snapshotOf('[profiles]\npreset = "locked-down"\n'),
  developer: snapshotOf(""),
  open: snapshotOf('[profiles]\npreset = "open"\n'),
};

function actions(type: EventType, fields: EventFields): string {
  const event = securityEvent(type, ID, fields);
  return Object.values(SNAPSHOTS)
    .map((snapshot) => decide(snapshot, event).action)
    .join(" ");
}

const http = (host: string): [EventType, EventFields] => [
  "http.request",
  { "http.host": host, "http.method": "GET" },
];
const dns = (name: string): [EventType, EventFields] => ["dns.query", { "dns.qname": name }];
const dial = (ip: string): [EventType, EventFields] => [
  "network.connect",
  { "network.destination.ip": ip, "network.destination.port": 443, "network.direction": "outbound" },
];
const tool = (pinned: boolean | undefined, more: EventFields = {}): [EventType, EventFields] => [
  "mcp.tool_call",
  {
    "mcp.server.name": "s",
    "mcp.server.pinned": pinned,
    "mcp.server.external": true,
    "mcp.tool_call.name": "t",
    ...more,
  },
];
const capsule = (level: number, more: EventFields = {}): [EventType, EventFields] => [
  "capsule.invoke",
  { "capsule.name": "c", "capsule.level": level, ...more },
];
const tainted = (one: Label) => labelFields(one);
const secret = label("secret", "user");
const clean = label("public", "user");
const outside = label("public", "untrusted");

// Each row: locked-down, developer, open. Attacks stand beside the same flow without the taint.
test.each<[string, [EventType, EventFields], string]>([
  ["a model's name", dns("api.openai.com"), "block allow allow"],
  ["a look-alike of a model's host", http("evilopenai.com"), "block ask allow"],
  ["a canary in a name that is not listed", dns("secret.attacker.test"), "block ask allow"],
  ["a model", http("api.anthropic.com"), "block allow allow"],
  ["anything else", http("example.com"), "block ask allow"],
  ["a metadata address", http("169.254.169.254"), "block block block"],
  ["a metadata address as a number", http("0xa9fea9fe"), "block block block"],
  ["a metadata address inside IPv6", http("[::ffff:169.254.169.254]"), "block block block"],
  ["a metadata name", http("metadata.google.internal."), "block block block"],
  ["a metadata address by any port", dial("169.254.169.254"), "block block block"],
  ["the host itself", http("127.1"), "block block allow"],
  ["the host by its name", http("LOCALHOST."), "block block allow"],
  ["a private address", dial("192.168.1.10"), "block block allow"],
  ["a private IPv6 address", dial("fd12::1"), "block block allow"],
  [
    "a private address without a direction",
    ["network.connect", { "network.destination.ip": "10.0.0.1", "network.destination.port": 1 }],
    "block block allow",
  ],
  [
    "a private address that dials a published port",
    ["network.connect", { ...dial("10.0.0.1")[1], "network.direction": "inbound" }],
    "block ask allow",
  ],
  ["a public address", dial("203.0.113.7"), "block ask allow"],
  ["an approved tool", tool(true), "allow allow allow"],
  ["a tool that changed", tool(false), "ask ask ask"],
  [
    "a secret to a web host",
    ["http.request", { ...http("openai.com")[1], ...tainted(secret) }],
    "block block block",
  ],
  [
    "what is no secret to that host",
    ["http.request", { ...http("openai.com")[1], ...tainted(clean) }],
    "block allow allow",
  ],
  [
    "a secret in a name",
    ["dns.query", { ...dns("a.openai.com")[1], ...tainted(secret) }],
    "block block block",
  ],
  ["a secret to an external tool", tool(true, tainted(secret)), "block block block"],
  [
    "a secret to a tool of which nobody said whether it is external",
    [
      "mcp.tool_call",
      { "mcp.server.name": "s", "mcp.tool_call.name": "t", "mcp.server.pinned": true, ...tainted(secret) },
    ],
    "block block block",
  ],
  [
    "a secret to a tool of ours",
    tool(true, { "mcp.server.external": false, ...tainted(secret) }),
    "allow allow allow",
  ],
  ["a tool of which nobody said whether it changed", tool(undefined), "ask ask ask"],
  ["what is no secret to that tool", tool(true, tainted(clean)), "allow allow allow"],
  ["doubtful input into a privileged tool", capsule(3, tainted(outside)), "ask ask ask"],
  ["the user's input into that tool", capsule(3, tainted(clean)), "ask allow allow"],
  ["doubtful input into a plain tool", capsule(1, tainted(outside)), "ask allow allow"],
  ["an act on the world", capsule(4, tainted(clean)), "ask ask ask"],
  [
    "a confirmed act on the world",
    capsule(4, { "capsule.confirmed": true, ...tainted(clean) }),
    "ask allow allow",
  ],
  ["a command", ["process.exec", { "process.command": "ls" }], "allow allow allow"],
  ["an export", ["file.export", { "file.export.path": "/x" }], "allow allow allow"],
  ["the end of a VM", ["vm.lifecycle", { "vm.lifecycle.action": "delete" }], "allow allow allow"],
])("%s", (_, [type, fields], expected) => {
  expect(actions(type, fields)).toBe(expected);
});

test("every preset says what happens to every event type", () => {
  for (const preset of Object.keys(SNAPSHOTS) as PresetName[])
    expect(SNAPSHOTS[preset].posture.size).toBe(22);
});
