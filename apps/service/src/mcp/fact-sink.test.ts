import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { builtPath } from "@capsem/native";
import { decide, type EventFields, securityEvent } from "@capsem/policy";
import { afterEach, expect, test } from "vitest";
import { snapshotOf } from "../../../../packages/policy/src/testing/policies.ts";
import type { AnyRow } from "../boundary/parts.ts";
import { SecretRedactor } from "../credential/redactor.ts";
import { createHome, homeLayout } from "../home/layout.ts";
import { openKeys } from "../ledger/key-files.ts";
import type { LedgerClient } from "../ledger/ledger-client.ts";
import { startLedger } from "../ledger/start-ledger.ts";
import { nodePowers } from "../powers-node.ts";
import { useLedgers, VM } from "../testing/ledger-rig.ts";
import { FactSink } from "./fact-sink.ts";

const SECRET = "sk-live-0123456789abcdef";
const REF = `credential:blake3:${"a".repeat(64)}`;
const snapshot = snapshotOf(
  '[profiles.rules.ok]\naction = "allow"\nmatch = \'event.type == "mcp.tool_call"\'\n',
);
const who = (event_id: string, more = {}) => ({
  ...{ event_id, time_ms: 1_700_000_000_000, trace_id: "1".repeat(32), turn_id: null },
  ...{ requester: "guest", client: "an agent", token_id: null, ...more },
});

function intent(event_id: string, fields: EventFields = {}, more = {}) {
  const event = securityEvent(
    "mcp.tool_call",
    { event_id, trace_id: "1".repeat(32) },
    {
      ...{ "vm.id": VM, "mcp.server.name": "shop", "mcp.server.external": true, "mcp.server.pinned": true },
      ...{ "mcp.tool_call.name": "buy", "mcp.tool_call.id": event_id, "mcp.method": "tools/call" },
      ...{ "mcp.transport": "framed", "mcp.request.arguments": { item: "pen" }, ...fields },
    },
  );
  const decision = decide(snapshot, event);
  // As it comes over the wire: what is undefined there is null.
  const wire = JSON.parse(JSON.stringify(decision, (_key, value) => (value === undefined ? null : value)));
  return {
    ...{ kind: "decision", who: who(event_id, more), event: event.toJSON(), decision: wire },
    policy_digest: snapshot.digest,
  };
}

function end(event_id: string, more: Record<string, unknown> = {}, call: Record<string, unknown> = {}) {
  const { decision } = intent(event_id);
  return {
    ...{ kind: "call", who: who(event_id), decision, outcome: "done", error: null, duration_ms: 12.5 },
    call: {
      ...{ call_id: event_id, origin: "mcp", transport: "framed", server_name: "shop", tool_name: "buy" },
      ...{
        method: "tools/call",
        request_id: "7",
        process_name: "agent",
        arguments_preview: '{"item":"pen"}',
      },
      ...{ response_preview: "bought", bytes_sent: 14, bytes_received: 6, label_in: "{}", label_out: "{}" },
      ...{ is_pinned: true, ...call },
    },
    ...more,
  };
}

interface Taken {
  readonly sink: FactSink;
  readonly rows: AnyRow[];
  readonly log: string[];
  /** Servers that are known to have answered. */
  readonly answered: string[];
}

function sinkOver(appendAll?: (ledger: string, rows: readonly AnyRow[]) => void): Taken {
  const rows: AnyRow[] = [];
  const log: string[] = [];
  const answered: string[] = [];
  const redactor = new SecretRedactor();
  redactor.add(REF, SECRET);
  const sink = new FactSink({
    scope: VM,
    ledger: { appendAll: appendAll ?? ((_ledger, more) => void rows.push(...more)) },
    redactor,
    rules: { of: (digest) => (digest === snapshot.digest ? snapshot : null) },
    isCaller: ({ requester }) => requester === "user uid 7",
    onAnswered: (server) => void answered.push(server),
    log: (_level, message, fields = {}) => void log.push(`${message}: ${fields.cause}`),
  });
  return { sink, rows, log, answered };
}

const ledgers = useLedgers();

const rowsOf = (rows: readonly AnyRow[], table: string) =>
  rows.filter((row) => row.table === table).map(({ row }) => row as unknown as Record<string, unknown>);

test("a call that was done says that its server is there; one that was not, and one of ours, say nothing", () => {
  const { sink, answered } = sinkOver();
  sink.append([intent("00000000000a"), end("00000000000a", { outcome: "failed", error: "no" })]);
  sink.append([intent("00000000000b"), end("00000000000b", {}, { origin: "builtin", server_name: "local" })]);
  expect(answered).toEqual([]);
  sink.append([intent("00000000000c"), end("00000000000c")]);
  expect(answered).toEqual(["shop"]);
});

test("a call becomes its decision, the rule that matched, its event, and one end", () => {
  const { sink, rows, log } = sinkOver();
  sink.append([intent("00000000000a"), end("00000000000a")]);
  expect([...new Set(rows.map(({ table }) => table))]).toEqual([
    "security_decision_events",
    "security_rule_events",
    "tool_calls",
  ]);
  const [decision] = rowsOf(rows, "security_decision_events");
  const shown = { requester: "guest", client: "an agent", action: "allow", policy_digest: snapshot.digest };
  expect(decision).toMatchObject({
    ...shown,
    type: "mcp.tool_call",
    rule_id: "profiles.rules.ok",
    is_redacted: false,
  });
  const [rule] = rowsOf(rows, "security_rule_events");
  expect(rule).toMatchObject({ has_won: true, fault: null });
  expect(String(rule?.rule)).toContain('"match":"event.type == \\"mcp.tool_call\\""');
  const [call] = rowsOf(rows, "tool_calls");
  expect(call).toMatchObject({
    ...{
      event_id: "00000000000a",
      tool_name: "buy",
      process_name: "agent",
      outcome: "done",
      duration_ms: 12.5,
    },
    ...{ decision: "allow", request_hash: null, is_pinned: true },
  });
  expect([sink.calls, sink.openCount, log]).toEqual([1, 0, []]);
});

test("no row has a registered secret, wherever a fact brings it", async () => {
  const { sink, rows } = sinkOver();
  const fields: EventFields = {
    "mcp.request.arguments": { key: SECRET, [SECRET]: [`Bearer ${SECRET}`] },
    "process.name": SECRET,
  };
  sink.append([
    intent("00000000000a", fields, { client: `agent ${SECRET}`, turn_id: SECRET }),
    end(
      "00000000000a",
      {
        error: `upstream said ${SECRET}`,
        bodies: { response: { text: `x ${SECRET} y`.repeat(9), bytes: 999 } },
      },
      {
        ...{ arguments_preview: `{"key":"${SECRET}"}`, response_preview: `it is ${SECRET.slice(0, 12)}` },
        ...{ process_name: SECRET, request_id: SECRET, tool_name: SECRET },
      },
    ),
  ]);
  await sink.close();
  expect(rowsOf(rows, "event_body_blobs").map(({ kind }) => kind)).toEqual(["mcp.response"]);
  expect(JSON.stringify(rows)).not.toContain(SECRET);
  // Half of it at the end of what was cut is none either.
  expect(JSON.stringify(rows)).not.toContain("sk-live-0123");
  expect(JSON.stringify(rows)).toContain(REF);
});

test("a large payload is stored whole beside its call, without a secret that lies across its slices", async () => {
  const { sink, rows } = sinkOver();
  const text = `${"a line of it\\n".repeat(20_100)}${SECRET}${"b".repeat(600_000)}${SECRET} end`;
  sink.append([intent("00000000000a")]);
  sink.append([end("00000000000a", { bodies: { request: { text, bytes: text.length + 5 } } })]);
  // Others do not wait for it.
  sink.append([intent("00000000000b"), end("00000000000b")]);
  expect(rowsOf(rows, "tool_calls").map(({ event_id }) => event_id)).toEqual(["00000000000b"]);
  await sink.close();
  const bodies = rowsOf(rows, "event_body_blobs").filter(({ kind }) => kind === "mcp.request");
  expect(bodies).toHaveLength(1);
  expect(bodies[0]).toMatchObject({ original_bytes: text.length + 5, is_truncated: true });
  expect(bodies[0]?.body).toBe(text.replaceAll(SECRET, `[${REF}]`));
  expect(rowsOf(rows, "tool_calls").at(-1)).toMatchObject({
    event_id: "00000000000a",
    request_hash: bodies[0]?.hash,
  });
});

test("a payload of the largest size is stored as far as a ledger holds it", async () => {
  const { client, fake } = await ledgers();
  await client.ready(VM);
  const { sink, log } = sinkOver((ledger, rows) => client.appendAll(ledger, rows, true));
  const text = "z".repeat(10 * 1024 ** 2);
  const bodies = {
    request: { text, bytes: text.length },
    response: { text: `${text}!`, bytes: text.length + 1 },
  };
  sink.append([intent("00000000000a"), end("00000000000a", { bodies })]);
  await sink.close();
  await client.flush(VM);
  const stored = fake.rows(VM, "event_body_blobs").filter(({ kind }) => kind !== "event");
  expect(stored.map(({ is_truncated }) => is_truncated)).toEqual([1, 1]);
  expect(fake.rows(VM, "tool_calls")).toHaveLength(1);
  expect(log).toEqual([]);
});

test("an end that overtook its intent waits for it; one without any is no row", async () => {
  const { sink, rows, log } = sinkOver();
  sink.append([end("00000000000a"), end("00000000000b")]);
  expect(rows).toEqual([]);
  sink.append([intent("00000000000a")]);
  expect(rowsOf(rows, "tool_calls").map(({ event_id }) => event_id)).toEqual(["00000000000a"]);
  await sink.close();
  expect(rowsOf(rows, "tool_calls")).toHaveLength(1);
  expect(log).toEqual(["the end of a call has no beginning: 00000000000b"]);
});

test("a call has one end, whatever its proxy says after it", () => {
  const { sink, rows } = sinkOver();
  sink.append([intent("00000000000a"), end("00000000000a"), end("00000000000a", { outcome: "failed" })]);
  expect(rowsOf(rows, "tool_calls").map(({ outcome }) => outcome)).toEqual(["done"]);
});

test("calls that a proxy leaves open are ended as interrupted, with what is known of them", async () => {
  const { sink, rows } = sinkOver();
  sink.append([intent("00000000000a"), intent("00000000000b"), end("00000000000b")]);
  await sink.close();
  const [, call] = rowsOf(rows, "tool_calls");
  expect(call).toMatchObject({
    ...{ event_id: "00000000000a", outcome: "interrupted", error: "proxy_lost", server_name: "shop" },
    ...{ tool_name: "buy", transport: "framed", origin: "mcp", requester: "guest" },
  });
});

test("a guest cannot be somebody else, and speaks of its own VM alone", () => {
  const { sink, rows, log } = sinkOver();
  sink.append([intent("00000000000a", {}, { requester: "user uid 0", token_id: "12345678" })]);
  expect(rowsOf(rows, "security_decision_events")[0]).toMatchObject({ requester: "guest", token_id: null });
  sink.append([intent("00000000000b", {}, { requester: "user uid 7" })]);
  expect(rowsOf(rows, "security_decision_events")[1]).toMatchObject({ requester: "user uid 7" });
  sink.append([intent("00000000000c", { "vm.id": "vm_bbbbbbbbbbbbbbbb" })]);
  expect(rowsOf(rows, "security_decision_events")).toHaveLength(2);
  expect(log).toEqual([
    "a proxy names somebody who asked nothing: 00000000000a",
    "what a proxy says cannot be recorded: its event is about another VM",
  ]);
});

const base = () =>
  structuredClone(intent("00000000000a")) as unknown as Record<string, Record<string, unknown>>;
const call = () => structuredClone(end("00000000000a")) as unknown as Record<string, Record<string, unknown>>;
const with_ = (
  make: () => Record<string, Record<string, unknown>>,
  at: string,
  name: string,
  value: unknown,
) => {
  const fact = make();
  const inner = fact[at];
  if (inner !== undefined) inner[name] = value;
  return fact;
};
const HOSTILE: readonly [string, unknown][] = [
  ["no object", 7],
  ["null", null],
  ["a list", []],
  ["bytes", new Uint8Array(3)],
  ["no kind", { who: who("00000000000a") }],
  ["an id of another shape", with_(base, "who", "event_id", "../../etc")],
  ["no time", with_(base, "who", "time_ms", Number.NaN)],
  ["a time after time", with_(base, "who", "time_ms", 1e300)],
  ["a requester that is none", with_(base, "who", "requester", { toString: 1 })],
  ["an act of the service's own", with_(base, "event", "type", "settings.change")],
  ["a type that there is not", with_(base, "event", "type", "mcp.other")],
  ["a field that there is not", with_(base, "event", "fields", { "vm.id": VM, __proto__x: 1 })],
  [
    "too many fields",
    with_(base, "event", "fields", Object.fromEntries(Array.from({ length: 999 }, (_, n) => [n, n]))),
  ],
  ["an action that is none", with_(base, "decision", "action", "maybe")],
  ["a match without a rule", with_(base, "decision", "explanation", { matched: [{}] })],
  ["matches without end", with_(base, "decision", "explanation", { matched: Array(9_999).fill({}) })],
  ["an outcome that is none", { ...call(), outcome: "won" }],
  ["a call that is none", { ...call(), call: null }],
  ["a name without end", with_(call, "call", "tool_name", "x".repeat(1e6))],
  ["a count below none", with_(call, "call", "bytes_sent", -1)],
  ["a label that is none", with_(call, "call", "label_in", 7)],
  ["a body that is none", { ...call(), bodies: { request: { text: 7, bytes: 1 } } }],
  [
    "a request without host",
    { kind: "net", who: who("00000000000a"), net: { kind: "x" }, outcome: "blocked", reason: "" },
  ],
];
for (const [name, fact] of HOSTILE) {
  test(`a fact that is no fact is no row and no crash: ${name}`, () => {
    const { sink, rows, log } = sinkOver();
    sink.append([fact, intent("00000000000e"), end("00000000000e")]);
    expect(log).toHaveLength(1);
    expect(rowsOf(rows, "tool_calls").map(({ event_id }) => event_id)).toEqual(["00000000000e"]);
  });
}

test("a proxy that talks nonsense does not fill the log", () => {
  const { sink, log } = sinkOver();
  sink.append(Array(10_000).fill({ kind: "nonsense" }));
  expect(log.length).toBeLessThan(64);
});

test("a name that is ours and was not served is a row of its own", () => {
  const { sink, rows } = sinkOver();
  const net = {
    ...{ kind: "capsem.internal.reserved", process_name: "curl", host: "secrets.capsem.internal", port: 80 },
    ...{ method: "GET", path: `/?key=${SECRET}`, status: 403 },
  };
  sink.append([
    { kind: "net", who: who("00000000000a"), net, outcome: "blocked", reason: "nothing is there" },
  ]);
  expect(rowsOf(rows, "net_events")).toEqual([
    expect.objectContaining({
      ...net,
      path: `/?key=[${REF}]`,
      decision: "block",
      rule_id: net.kind,
      outcome: "blocked",
    }),
  ]);
});

test("what was within the credit is taken by a ledger that became full meanwhile, which says so before the next", async () => {
  const { client, fake } = await ledgers({}, { vmBytesMax: 4_000 });
  await client.ready(VM);
  const { sink } = sinkOver((ledger, rows) => client.appendAll(ledger, rows, true));
  sink.append([intent("00000000000a")]);
  await client.flush(VM);
  for (let n = 0; n < 40 && client.roomOf(VM).refusal === null; n++) {
    const id = `0000000000${(n + 16).toString(16)}`;
    sink.append([intent(id), end(id)]);
    await client.flush(VM);
  }
  expect(client.roomOf(VM).refusal?.kind).toBe("ledger_full");
  // Sent before it knew.
  sink.append([intent("0000000000ff"), end("0000000000ff"), end("00000000000a")]);
  await client.flush(VM);
  await client.flush("host");
  const all = [...fake.rows(VM, "tool_calls"), ...fake.rows("host", "tool_calls")].map(
    ({ event_id }) => event_id,
  );
  expect(all).toContain("0000000000ff");
  expect(all).toContain("00000000000a");
});

const homes: string[] = [];
const clients: LedgerClient[] = [];
afterEach(async () => {
  for (const client of clients.splice(0)) await client.close();
  for (const home of homes.splice(0)) rmSync(home, { recursive: true, force: true });
});

test("the real ledger takes these rows, chains them, and shows the calls", async () => {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-facts-")));
  homes.push(home);
  const layout = homeLayout(home);
  const uid = process.getuid?.() ?? -1;
  await createHome(layout, uid);
  const log: string[] = [];
  const client = startLedger({
    ...{ layout, powers: nodePowers(builtPath("ledger.cjs"), builtPath("ledger.cjs")) },
    ...{ key: openKeys(layout.keys, uid).head, vmBytesMax: 1024 ** 3, allowUnconfined: () => true },
    log: (level, message) => void (level === "error" && log.push(message)),
  });
  clients.push(client);
  await client.ready(VM);
  const { sink } = sinkOver((ledger, rows) => client.appendAll(ledger, rows, true));
  const text = `{"key":"${SECRET}","rest":"${"z".repeat(200_000)}"}`;
  sink.append([
    intent("00000000000a", { "mcp.request.arguments": { key: SECRET } }),
    end("00000000000a", { bodies: { request: { text, bytes: text.length } } }),
    intent("00000000000b"),
  ]);
  await sink.close();
  await client.finish(VM);
  const verified = await client.verify(VM);
  expect(verified).toMatchObject({ is_whole: true, fault: null });
  const stream = await client.export(VM);
  const chunks: Uint8Array[] = [];
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) chunks.push(chunk);
  stream.end();
  const exported = Buffer.concat(chunks).toString("utf8");
  expect(exported).not.toContain(SECRET);
  const outcomes = exported
    .split("\n")
    .flatMap((line) => (line.includes('"tool_calls"') ? (/"(done|interrupted)"/.exec(line)?.[1] ?? []) : []));
  expect(outcomes.sort()).toEqual(["done", "interrupted"]);
  expect(log).toEqual([]);
});

test("what is said in the moment of a proxy's end is ended too", async () => {
  const rows: AnyRow[] = [];
  const sink = new FactSink({
    ...{
      scope: VM,
      redactor: new SecretRedactor(),
      isCaller: () => true,
      onAnswered: () => undefined,
      log: () => undefined,
    },
    rules: { of: () => snapshot },
    ledger: { appendAll: (_ledger: string, more: readonly AnyRow[]) => void rows.push(...more) },
  });
  const closing = sink.close();
  sink.append([intent("0123456789ab")]);
  await closing;
  expect(rows.filter(({ table }) => table === "tool_calls").map(({ row }) => row)).toMatchObject([
    { event_id: "0123456789ab", outcome: "interrupted", error: "proxy_lost" },
  ]);
  expect(sink.openCount).toBe(0);
});
