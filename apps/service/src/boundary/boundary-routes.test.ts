import { existsSync } from "node:fs";
import { HOST_LEDGER, ROUTES, type RouteName } from "@capsem/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Reply } from "../testing/client.ts";
import { BOUNDARY_TABLE, type DraftedRoute } from "./boundary-table.ts";
import type { Boundary } from "./parts.ts";
import { type BoundaryRig, startBoundaryRig } from "./testing/boundary-rig.ts";
import { ruleOn } from "./testing/fake-parts.ts";
import { StreamClient } from "./testing/stream-client.ts";

let rig: BoundaryRig;
beforeAll(async () => {
  rig = await startBoundaryRig();
});
afterAll(async () => {
  await rig.close();
});

type End = "exec_events" | "fs_events" | "lifecycle_events";

interface RouteCase {
  readonly type: string;
  readonly table: End;
  /** The VM that it needs. */
  readonly vm: "running" | "stopped" | "temporary" | "none";
  /** Returns the error, or nothing when it was done. */
  readonly call: (id: string) => Promise<unknown>;
  /** Events that it makes beside its own. */
  readonly more?: number;
}

async function errorOf(reply: Promise<Reply>): Promise<unknown> {
  const { status, bytes } = await reply;
  return status === 200 ? undefined : (JSON.parse(bytes.toString()) as { error: unknown }).error;
}
const post = (path: string, body?: unknown) => errorOf(rig.client.post(path, body));
const put = (path: string) => errorOf(rig.client.call("PUT", path, { bytes: Buffer.from("bytes") }));
const files = (id: string) => `/vms/${id}/files`;
const inFiles = { type: "file.event", table: "fs_events", vm: "running" } as const;
const ofVm = { type: "vm.lifecycle", table: "lifecycle_events" } as const;

/** Every route of the VM side that does something a rule may judge. */
const CASES: Readonly<Record<DraftedRoute | "create" | "run" | "purge" | "stream" | "fileRead", RouteCase>> =
  {
    create: { ...ofVm, vm: "none", call: () => post("/vms/create", {}) },
    start: { ...ofVm, vm: "stopped", call: (id) => post(`/vms/${id}/start`) },
    stop: { ...ofVm, vm: "running", call: (id) => post(`/vms/${id}/stop`) },
    restart: { ...ofVm, vm: "running", call: (id) => post(`/vms/${id}/restart`) },
    rename: { ...ofVm, vm: "running", call: (id) => post(`/vms/${id}/rename`, { name: "renamed" }) },
    persist: { ...ofVm, vm: "temporary", call: (id) => post(`/vms/${id}/persist`, { name: "persisted" }) },
    delete: { ...ofVm, vm: "running", call: (id) => errorOf(rig.client.delete(`/vms/${id}/delete`)) },
    purge: { ...ofVm, vm: "running", call: () => post("/purge", { all: true }) },
    exec: {
      ...{ type: "process.exec", table: "exec_events", vm: "running", more: 1 },
      call: (id) => post(`/vms/${id}/exec`, { command: "touch done" }),
    },
    run: {
      ...{ type: "process.exec", table: "exec_events", vm: "none", more: 3 },
      call: () => post("/run", { command: "touch done" }),
    },
    stream: {
      ...{ type: "process.exec", table: "exec_events", vm: "running", more: 1 },
      async call(id) {
        const client = new StreamClient(rig.socket, id);
        await client.send({ type: "start", kind: "exec", command: "touch done" });
        await expect.poll(() => client.messages.some(isLast), { timeout: 30_000 }).toBe(true);
        await expect
          .poll(() => rig.ledger.rows.size === 0 || rig.ledger.of("exec_events").length > 0)
          .toBe(true);
        return client.messages.find(isLast)?.error;
      },
    },
    fileWrite: {
      ...{ type: "file.import", table: "fs_events", vm: "running" },
      call: (id) => put(`${files(id)}/content?path=done`),
    },
    treeWrite: {
      ...{ type: "file.import", table: "fs_events", vm: "running" },
      call: (id) => put(`${files(id)}/tree?path=done`),
    },
    fileRead: {
      ...{ type: "file.export", table: "fs_events", vm: "running" },
      call: (id) => errorOf(rig.client.get(`${files(id)}/content?path=given`)),
    },
    treeRead: {
      ...{ type: "file.export", table: "fs_events", vm: "running" },
      call: (id) => errorOf(rig.client.get(`${files(id)}/tree?path=given`)),
    },
    fileDelete: { ...inFiles, call: (id) => errorOf(rig.client.delete(`${files(id)}/content?path=given`)) },
    fileMkdir: { ...inFiles, call: (id) => post(`${files(id)}/mkdir`, { path: "done" }) },
    fileRename: { ...inFiles, call: (id) => post(`${files(id)}/rename`, { path: "given", to: "done" }) },
  };

function isLast({ type }: { readonly type: string }): boolean {
  return type === "error" || type === "exit";
}

let made = 0;
async function vmFor({ vm }: RouteCase): Promise<string> {
  rig.policy.rules("");
  rig.ledger.trouble.clear();
  await rig.client.post("/purge", { all: true });
  if (vm === "none") return "";
  made += 1;
  const id = await rig.create(vm === "temporary" ? {} : { name: `box-${made}` });
  await rig.client.call("PUT", `${files(id)}/content?path=given`, { bytes: Buffer.from("given") });
  if (vm === "stopped") await rig.client.post(`/vms/${id}/stop`);
  rig.spy(id);
  return id;
}

/** From here on: what is asked of owners, started and recorded. */
function forget(): void {
  rig.calls.length = 0;
  rig.starts.length = 0;
  rig.ledger.clear();
}

const names = Object.keys(CASES) as (keyof typeof CASES)[];

test.each(names)("%s, where a rule blocks it, is refused and reaches no owner", async (name) => {
  const route = CASES[name];
  const id = await vmFor(route);
  const before = id === "" ? null : { ...rig.registry.get(id).record };
  rig.policy.rules(ruleOn(route.type, "block"));
  forget();
  const error = await route.call(id);
  expect(error).toMatchObject({ kind: "policy", status: 403, rule_id: "profiles.rules.guard" });
  expect([rig.calls, rig.starts]).toEqual([[], []]);
  if (before !== null) expect(rig.registry.get(id).record).toEqual(before);
  else expect(rig.registry.list()).toEqual([]);
  const [decision, ...others] = rig.ledger.of("security_decision_events");
  expect(others).toEqual([]);
  expect(decision).toMatchObject({ type: route.type, action: "block" });
  const ends = rig.ledger.of(route.table);
  expect(ends).toMatchObject([{ event_id: decision?.event_id, outcome: "blocked", decision: "block" }]);
  expect([...rig.ledger.rows.keys()]).toEqual([id === "" ? HOST_LEDGER : id]);
});

test.each(names)("%s, where rules allow it, leaves its decision and its end", async (name) => {
  const route = CASES[name];
  const id = await vmFor(route);
  forget();
  expect(await route.call(id)).toBeUndefined();
  const decisions = rig.ledger.of("security_decision_events");
  expect(decisions).toHaveLength(1 + (route.more ?? 0));
  const [own] = decisions.filter(({ type }) => type === route.type);
  expect(own).toMatchObject({ action: "allow" });
  const ends = rig.ledger.of(route.table).filter(({ event_id }) => event_id === own?.event_id);
  expect(ends).toMatchObject([{ outcome: "done", error: null, trace_id: own?.trace_id }]);
  // No row is left open, and none ends twice.
  const judged = decisions.filter(({ type }) => type !== "process.exec_complete");
  const all = [
    ...rig.ledger.of("exec_events"),
    ...rig.ledger.of("fs_events"),
    ...rig.ledger.of("lifecycle_events"),
  ];
  expect(all.map(({ event_id }) => event_id).sort()).toEqual(judged.map(({ event_id }) => event_id).sort());
});

test.each(names)("%s, while the ledger is away, is refused and nothing is done", async (name) => {
  const route = CASES[name];
  const id = await vmFor(route);
  const before = id === "" ? null : { ...rig.registry.get(id).record };
  rig.ledger.trouble.set("*", "ledger_away");
  forget();
  const error = await route.call(id);
  expect(error).toMatchObject({ kind: "ledger_away", status: 503, retryable: true });
  expect([rig.calls, rig.starts, rig.ledger.rows.size]).toEqual([[], [], 0]);
  if (before !== null) expect(rig.registry.get(id).record).toEqual(before);
});

test("every route that changes something is a case here, another handler's, or says why it is not judged", () => {
  const changing = (Object.keys(ROUTES) as RouteName[]).filter((name) => ROUTES[name].mutates);
  const rest = [...changing, ...(Object.keys(BOUNDARY_TABLE) as RouteName[])].filter((name) => {
    const row = BOUNDARY_TABLE[name];
    const isRead = typeof row === "object" && !ROUTES[name].mutates;
    return !Object.hasOwn(CASES, name) && !isRead;
  });
  const inside = [...new Set(rest)].filter((name) => BOUNDARY_TABLE[name] === "inside");
  expect(inside).toEqual([
    "rulePut",
    "ruleDelete",
    "settingEdit",
    "corpReload",
    "credentialInject",
    "credentialDelete",
    "mcpServerPut",
    "mcpServerDelete",
    "mcpDefaultSet",
    "mcpToolSet",
    "mcpPinsApprove",
    "ledgerArchive",
  ]);
  const notJudged = [...new Set(rest)].filter((name) => BOUNDARY_TABLE[name] !== "inside");
  expect(notJudged.sort()).toEqual(["askResolve", "jobSignal", "mcpCall", "mcpRefresh"]);
});

/** What the service would be without its boundary. */
const OPEN_GATE: Boundary = {
  pass: (_context, _draft, work) =>
    work({
      eventId: "0".repeat(12),
      decision: {} as never,
      add: () => undefined,
      keep: () => ({ add: () => undefined, close: () => undefined }),
    }),
  judgeResult: async () => undefined,
  noteResult: () => "allow",
  note: () => undefined,
};

test("the attack: without the boundary a blocked command runs, with it the guest never hears of it", async () => {
  const attack = { command: "touch attacked" };
  const open = await startBoundaryRig({ boundary: OPEN_GATE });
  try {
    const id = await open.create({ name: "open" });
    open.policy.rules(ruleOn("process.exec", "block"));
    expect((await open.client.post(`/vms/${id}/exec`, attack)).status).toBe(200);
    expect(existsSync(open.guestFile(id, "attacked"))).toBe(true);
  } finally {
    await open.close();
  }
  const id = await vmFor(CASES.exec);
  rig.policy.rules(ruleOn("process.exec", "block"));
  expect((await rig.client.post(`/vms/${id}/exec`, attack)).status).toBe(403);
  expect(existsSync(rig.guestFile(id, "attacked"))).toBe(false);
});
