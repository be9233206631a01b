import { createHash } from "node:crypto";
import { assert } from "@capsem/base";
import {
  compileSnapshot,
  decide,
  decideUnindexed,
  type EventFields,
  type EventType,
  type PolicySnapshot,
  parseLayer,
  type SecurityEvent,
  securityEvent,
} from "@capsem/policy";
import { count } from "./measure.ts";
import { type Figure, figure } from "./statistics.ts";

const digest = (text: string) => createHash("sha256").update(text).digest("hex");

/** Rules as people write them: most name a host, a tool, a command or a path; a few look at everything. */
const SHAPES: readonly ((n: number) => { readonly action: string; readonly match: string })[] = [
  (n) => ({ action: "allow", match: `host_in(http.host, "site${n}.example.com")` }),
  (n) => ({ action: "ask", match: `http.host == "api${n}.example.org" && http.method == "POST"` }),
  (n) => ({ action: "block", match: `mcp.tool_call.name == "tool_${n}" && has(mcp.request.arguments.path)` }),
  (n) => ({ action: "allow", match: `mcp.server.name == "server_${n}" && mcp.server.pinned` }),
  (n) => ({ action: "block", match: `file.export.path.startsWith("/secret/${n}/")` }),
  (n) => ({
    action: "ask",
    match: `event.type == "process.exec" && process.exec.path == "/usr/bin/tool${n}"`,
  }),
  (n) => ({
    action: "block",
    match: `dns.qname == "host${n}.example.net" || host_in(dns.qname, "z${n}.test")`,
  }),
  (n) => ({ action: "ask", match: `network.destination.port == ${1024 + n} && network.protocol == "tcp"` }),
  (n) => ({ action: "allow", match: `http.host in ["a${n}.example.com", "b${n}.example.com"]` }),
  (n) => ({ action: "block", match: `capsule.name == "capsule_${n}" && capsule.level > 2` }),
];

function ruleFile(count: number): string {
  const rules = Array.from({ length: count }, (_, n) => {
    const { action, match } = (SHAPES[n % SHAPES.length] ?? (() => ({ action: "ask", match: "true" })))(n);
    return `[profiles.rules.rule_${n}]\naction = "${action}"\nmatch = '${match}'\npriority = ${10 + (n % 900)}\n`;
  });
  return rules.join("\n");
}

/** An event that the rule of the same shape and number matches. */
const ACTS: readonly ((n: number) => readonly [EventType, EventFields])[] = [
  (n) => ["http.request", request(`site${n}.example.com`, "GET")],
  (n) => ["http.request", request(`api${n}.example.org`, "POST")],
  (n) => ["mcp.tool_call", call("server", `tool_${n}`)],
  (n) => ["mcp.tool_call", call(`server_${n}`, "tool")],
  (n) => ["file.export", { "file.export.path": `/secret/${n}/key.pem`, "file.export.size": 10 }],
  (n) => ["process.exec", { "process.command": "tool", "process.exec.path": `/usr/bin/tool${n}` }],
  (n) => ["dns.query", { "dns.qname": `host${n}.example.net`, "dns.qtype": "A" }],
  (n) => [
    "network.connect",
    {
      "network.destination.ip": "203.0.113.9",
      "network.destination.port": 1024 + n,
      "network.protocol": "tcp",
    },
  ],
  (n) => ["http.request", request(`b${n}.example.com`, "PUT")],
  (n) => ["capsule.invoke", { "capsule.name": `capsule_${n}`, "capsule.level": 3 }],
];

function request(host: string, method: string): EventFields {
  return { "http.host": host, "http.method": method, "http.path": "/v1/things", "http.port": 443 };
}

function call(server: string, tool: string): EventFields {
  return {
    "mcp.server.name": server,
    "mcp.server.pinned": true,
    "mcp.tool_call.name": tool,
    "mcp.request.arguments": { path: "/tmp/x", count: 3 },
  };
}

/** Every second one is about something that no rule names. */
function eventAt(n: number, rules: number): SecurityEvent {
  const act = ACTS[n % ACTS.length] ?? (() => ["security.ask", {}] as const);
  const [type, fields] = act(n % 20 < 10 ? n % rules : 10_000 + n);
  return securityEvent(type, { event_id: n.toString(16).padStart(12, "0") }, { "vm.id": "vm_x", ...fields });
}

const BATCH = 50;

/** Microseconds of one decision, as the mean of a batch: one alone is shorter than the clock is exact. */
function measure(
  decideOne: typeof decide,
  snapshot: PolicySnapshot,
  events: readonly SecurityEvent[],
): number {
  const startedNs = process.hrtime.bigint();
  for (const event of events) decideOne(snapshot, event);
  return Number(process.hrtime.bigint() - startedNs) / 1000 / events.length;
}

function snapshotOf(count: number): PolicySnapshot {
  const user = parseLayer("user", ruleFile(count));
  assert(user.kind === "ok", `the benchmark's ${count} rules do not compile`);
  return compileSnapshot({ user: user.value }, digest);
}

/** Both ways must decide alike, and rules must decide some of it, or the figures say nothing. */
function checkDecisions(snapshot: PolicySnapshot, events: readonly SecurityEvent[]): void {
  let byUserRule = 0;
  for (const event of events) {
    const decision = decide(snapshot, event);
    const naive = decideUnindexed(snapshot, event);
    assert(
      JSON.stringify(decision) === JSON.stringify(naive),
      `index and naive disagree on ${JSON.stringify(event)}`,
    );
    if (decision.rule_id.startsWith("profiles.rules.")) byUserRule += 1;
  }
  assert(byUserRule > events.length / 4, `user rules decided only ${byUserRule} of ${events.length} events`);
}

/** Decisions with 100 and 1,000 rules; the indexed and the naive way in turn, so that both see the same machine. */
export async function policyFigures(rounds = count(200, 8)): Promise<Figure[]> {
  return [100, 1_000].flatMap((rules) => {
    const snapshot = snapshotOf(rules);
    const events = Array.from({ length: BATCH * 8 }, (_, n) => eventAt(n, rules));
    checkDecisions(snapshot, events);
    const samples = { indexed: [] as number[], naive: [] as number[] };
    for (let round = -40; round < rounds; round += 1) {
      const from = (Math.abs(round) % 8) * BATCH;
      const batch = events.slice(from, from + BATCH);
      const indexed = measure(decide, snapshot, batch);
      const naive = measure(decideUnindexed, snapshot, batch);
      // The first rounds are for the compiler.
      if (round >= 0) {
        samples.indexed.push(indexed);
        samples.naive.push(naive);
      }
    }
    const promise = rules === 100 ? "p50 ≤ 5 µs" : "p50 ≤ 20 µs";
    return [
      figure(`decision, ${rules} rules`, "µs", samples.indexed, promise),
      figure(`decision, ${rules} rules, without the index`, "µs", samples.naive, "to compare"),
    ];
  });
}
