import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type LedgerRow, ROUTES, type RouteName } from "@capsem/api";
import { Failure } from "@capsem/base";
import { afterEach, expect, test } from "vitest";
import type { ActContext } from "../act.ts";
import { createBoundary } from "../boundary/boundary.ts";
import type { AnyRow } from "../boundary/parts.ts";
import { FakeAsks, FakePolicy } from "../boundary/testing/fake-parts.ts";
import { createHome, homeLayout } from "../home/layout.ts";
import type { Handlers } from "../http/handler.ts";
import { openKeys } from "../ledger/key-files.ts";
import type { LedgerClient } from "../ledger/ledger-client.ts";
import { startLedger } from "../ledger/start-ledger.ts";
import { FakeLedger } from "../testing/fake-ledger.ts";
import type { Registry } from "../vm/registry.ts";
import { evidenceRoutes } from "./evidence-routes.ts";

const GONE = "vm_aaaaaaaaaaaaaaaa";
const HERE = "vm_bbbbbbbbbbbbbbbb";
const uid = process.getuid?.() ?? -1;

const rigs: { client: LedgerClient; home: string }[] = [];
afterEach(async () => {
  for (const { client, home } of rigs.splice(0)) {
    await client.close();
    rmSync(home, { recursive: true, force: true });
  }
});

async function rigOf() {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-evidence-")));
  const layout = homeLayout(home);
  await createHome(layout, uid);
  const fake = new FakeLedger();
  const random = (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes));
  const clock = { nowMs: () => Date.now(), monotonicMs: () => performance.now() };
  const log: unknown[] = [];
  const keepLog = (...line: unknown[]) => void log.push(line);
  const client = startLedger({
    layout,
    powers: { ...clock, random, startLedger: fake.startLedger },
    key: openKeys(layout.keys, uid).head,
    vmBytesMax: 1024 ** 3,
    allowUnconfined: () => false,
    log: keepLog,
  });
  rigs.push({ client, home });
  let state = "running";
  const registry = {
    has: (id: string) => id === HERE,
    get: () => ({ record: { state, name: "named" } }),
  } as unknown as Registry;
  const redactor = {
    text: (text: string) => ({ text: text.replaceAll("secret", "***"), isRedacted: false }),
    json: <T>(value: T) => ({ value, isRedacted: false }),
  };
  const policy = new FakePolicy();
  const boundary = createBoundary({
    ...{ ...clock, policy, redactor, random, ledger: client, asks: new FakeAsks(), log: keepLog },
    digestKey: Buffer.alloc(32, 1),
  });
  const routes = evidenceRoutes({
    powers: { ...clock, random },
    registry,
    ledger: client,
    boundary,
    policyDigest: () => "digest",
    redactor,
    log: keepLog,
  });
  const set = (next: string) => {
    state = next;
  };
  return { client, fake, routes, log, set, policy };
}
type Routes = Awaited<ReturnType<typeof rigOf>>["routes"];

const context: ActContext = {
  ...{ requester: { kind: "user", name: "uid 1" }, client: "a secret client", tokenId: null },
  ...{
    trace: "",
    traceId: "f".repeat(32),
    asks: "hold" as const,
    turn: null,
    timeLeftMs: null,
    signal: new AbortController().signal,
  },
};

/** Through the schemas of the route, as the server has it. */
async function ask<N extends keyof Routes & RouteName>(
  routes: Routes,
  name: N,
  params: unknown = undefined,
  query: unknown = {},
): Promise<unknown> {
  const route = ROUTES[name] as (typeof ROUTES)["timeline"];
  const call = {
    params: params === undefined ? undefined : route.params.parse(params),
    query: "query" in route ? route.query.parse(query) : undefined,
    ...{ body: undefined, bytes: null, context, openSocket: null },
  };
  const handler = routes[name] as unknown as Handlers["timeline"];
  const answer = await handler(call as unknown as Parameters<Handlers["timeline"]>[0]);
  if (answer.kind === "json") return route.result.parse(answer.value);
  if (answer.kind !== "bytes") throw new Error(`no answer of ${answer.kind}`);
  const chunks: Uint8Array[] = [];
  await answer.pump(async (chunk) => void chunks.push(chunk));
  return { headers: answer.headers, text: Buffer.concat(chunks).toString() };
}

async function kindOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => "done",
    (thrown: unknown) => (thrown instanceof Failure ? thrown.kind : `no failure: ${thrown}`),
  );
}

const who = { turn_id: null, requester: "user uid 1", client: null, token_id: null };

function job(eventId: string, command: string, timeMs = Date.now(), traceId: string | null = null): AnyRow {
  const row: LedgerRow<"exec_events"> = {
    ...{ ...who, event_id: eventId, time_ms: timeMs, trace_id: traceId, job_id: null, kind: "exec", command },
    ...{ user: null, cwd: null, env_names: "[]", exit_code: 0, signal: null, timed_out: false },
    ...{ out_of_memory: null, stdout_bytes: 1, stderr_bytes: 0, stdout_preview: null, stderr_preview: null },
    ...{ decision: "allow", rule_id: "r", reason: "", outcome: "done", error: null, duration_ms: 1 },
  };
  return { table: "exec_events", row };
}

type Page = { entries: { title: string }[]; next: string | null };

test("rows that were just taken are in the timeline, also of a VM that is gone", async () => {
  const { client, routes } = await rigOf();
  client.appendAll(GONE, [job("e1", "make"), job("e2", "make test")]);
  const page = (await ask(routes, "timeline", { id: GONE })) as Page;
  expect(page.entries.map(({ title }) => title)).toEqual(["make", "make test"]);
});

test("a timeline is cut by layers, trace and time, turned around and paged", async () => {
  const { client, routes } = await rigOf();
  const old = Date.now() - 7_200_000;
  client.appendAll(GONE, [job("e1", "old", old), job("e2", "traced", Date.now(), "t"), job("e3", "new")]);
  const titles = async (query: unknown) => {
    const page = (await ask(routes, "timeline", { id: GONE }, query)) as Page;
    return [...page.entries.map(({ title }) => title), page.next];
  };
  expect(await titles({ since: "1h" })).toEqual(["traced", "new", null]);
  expect(await titles({ since: new Date(old).toISOString() })).toEqual(["old", "traced", "new", null]);
  expect(await titles({ trace_id: "t" })).toEqual(["traced", null]);
  expect(await titles({ layers: "file,ask" })).toEqual([null]);
  expect(await titles({ newest: "true", limit: "2" })).toEqual(["new", "traced", "2"]);
  expect(await titles({ newest: "true", limit: "2", cursor: "2" })).toEqual(["old", null]);
  expect(await kindOf(ask(routes, "timeline", { id: GONE }, { layers: "exec,network" }))).toBe(
    "invalid_input",
  );
});

test("history, counts and their details come from the same rows", async () => {
  const { client, routes } = await rigOf();
  client.appendAll(GONE, [job("e1", "make"), job("e2", "ls"), job("e3", "make test")]);
  expect(await ask(routes, "history", { id: GONE }, { search: "make", limit: "1" })).toMatchObject({
    entries: [{ command: "make test" }],
    total: 2,
  });
  expect(await ask(routes, "history", { id: GONE }, { offset: "2" })).toMatchObject({
    entries: [{ command: "make" }],
  });
  expect(await ask(routes, "vmStats", { id: GONE })).toMatchObject({ commands: 3, rows: 3 });
  expect(await ask(routes, "vmStatsDetail", { id: GONE })).toMatchObject({ outcomes: { done: 3 } });
  expect(await ask(routes, "securityEvents", { id: GONE }, { action: "block" })).toEqual({
    events: [],
    next: null,
  });
});

test.each(["timeline", "history", "vmStats", "vmStatsDetail", "securityEvents"] as const)(
  "%s of a ledger that is not there is ledger_not_found",
  async (route) => {
    const { routes } = await rigOf();
    expect(await kindOf(ask(routes, route, { id: GONE }))).toBe("ledger_not_found");
  },
);

test("the list names VMs as they are now, and says which are gone", async () => {
  const { client, routes } = await rigOf();
  client.appendAll(GONE, [job("e1", "make")]);
  client.appendAll(HERE, [job("e1", "make")]);
  await Promise.all([client.flush(GONE), client.flush(HERE)]);
  const { ledgers } = (await ask(routes, "ledgers")) as { ledgers: { vm_id: string }[] };
  expect(ledgers.filter(({ vm_id }) => vm_id !== "host")).toMatchObject([
    { vm_id: GONE, name: null, has_vm: false, rows: 1 },
    { vm_id: HERE, name: "named", has_vm: true, rows: 1 },
  ]);
});

test("a verification holds the ledger to its checkpoint", async () => {
  const { client, fake, routes } = await rigOf();
  client.appendAll(GONE, [job("e1", "make")]);
  await client.finish(GONE);
  expect(await ask(routes, "ledgerVerify", { vm_id: GONE })).toMatchObject({
    is_whole: true,
    signed_rows: 1,
  });
  expect(await kindOf(ask(routes, "ledgerVerify", { vm_id: HERE }))).toBe("ledger_not_found");
  expect(fake.verified).toMatchObject([
    { checkpoint: { rows: 1 }, public_key: client.publicKey },
    { checkpoint: null },
  ]);
});

test("what a verification finds is remembered: the status says it, and nothing more is written there", async () => {
  const { client, fake, routes, set } = await rigOf();
  client.appendAll(HERE, [job("e1", "make"), job("e2", "make test")]);
  await client.finish(HERE);
  fake.alter(HERE, 1);
  expect(client.status).toEqual({ state: "ok", reason: null });
  expect(await ask(routes, "ledgerVerify", { vm_id: HERE })).toMatchObject({
    is_whole: false,
    fault: { kind: "altered", row: 1 },
  });
  expect(client.status).toEqual({ state: "ok", reason: expect.stringContaining(HERE) });
  expect(await kindOf(client.checkWhole(HERE))).toBe("ledger_broken");
  set("stopped");
  expect(await ask(routes, "ledgerArchive", { vm_id: HERE })).toMatchObject({ vm_id: HERE });
  expect(client.status).toEqual({ state: "ok", reason: null });
  expect(await kindOf(client.checkWhole(HERE))).toBe("done");
  // Who did it is told by the service's own ledger, to whoever reads its story.
  const { entries } = (await ask(routes, "timeline", { id: "host" })) as { entries: object[] };
  expect(entries).toMatchObject([{ layer: "settings", requester: "user uid 1" }]);
});

test("an export is every row as a line of JSON, behind one of the head", async () => {
  const { client, routes } = await rigOf();
  for (let n = 0; n < 3_000; n++) client.appendAll(GONE, [job(`e${n}`, "x".repeat(100))]);
  const { headers, text } = (await ask(routes, "ledgerExport", { vm_id: GONE })) as {
    headers: Record<string, string>;
    text: string;
  };
  expect(headers["content-type"]).toBe("application/x-ndjson");
  const lines = text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(lines).toHaveLength(3_001);
  expect([lines[0].rows, lines[3_000].event_id]).toEqual([3_000, "e2999"]);
  expect(await kindOf(ask(routes, "ledgerExport", { vm_id: HERE }))).toBe("ledger_not_found");
});

test("a ledger is not set aside under a VM that runs, nor the service's own while it is whole", async () => {
  const { client, fake, routes, set } = await rigOf();
  client.appendAll(HERE, [job("e1", "make")]);
  await client.flush(HERE);
  for (const state of ["running", "starting", "stopping", "creating", "deleting"]) {
    set(state);
    expect(await kindOf(ask(routes, "ledgerArchive", { vm_id: HERE })), state).toBe("wrong_state");
  }
  expect(await kindOf(ask(routes, "ledgerArchive", { vm_id: "host" }))).toBe("wrong_state");
  expect(await kindOf(ask(routes, "ledgerArchive", { vm_id: GONE }))).toBe("ledger_not_found");
  set("stopped");
  // A whole ledger is not set aside: whoever wants evidence out of the way does not get it.
  expect(await kindOf(ask(routes, "ledgerArchive", { vm_id: HERE }))).toBe("wrong_state");
  fake.alter(HERE, 1);
  expect(await ask(routes, "ledgerArchive", { vm_id: HERE })).toEqual({ vm_id: HERE, name: "archive-1" });
  await client.flush("host");
  expect(fake.rows("host", "policy_mutations").filter(({ outcome }) => outcome === "done")).toMatchObject([
    {
      key: "ledger.archive",
      before: HERE,
      after: "archive-1",
      requester: "user uid 1",
      client: "a *** client",
    },
  ]);
});

test("setting a ledger aside is an act: a rule that guards it holds", async () => {
  const { client, fake, routes, set, policy } = await rigOf();
  client.appendAll(HERE, [job("e1", "make")]);
  await client.finish(HERE);
  fake.alter(HERE, 1);
  set("stopped");
  const match = 'event.type == "settings.change" && settings.key == "ledger.archive"';
  policy.rules(`[profiles.rules.guard]\naction = "block"\nmatch = '${match}'\nreason = "evidence stays"\n`);
  expect(await kindOf(ask(routes, "ledgerArchive", { vm_id: HERE }))).toBe("policy");
  expect(fake.rows(HERE)).toHaveLength(1);
  await client.flush("host");
  expect(fake.rows("host", "policy_mutations")).toMatchObject([
    { key: "ledger.archive", outcome: "blocked" },
  ]);
  policy.rules("");
  expect(await ask(routes, "ledgerArchive", { vm_id: HERE })).toMatchObject({ vm_id: HERE });
});
