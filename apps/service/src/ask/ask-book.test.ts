import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { askInfo } from "@capsem/api";
import { defer, Failure } from "@capsem/base";
import { afterEach, beforeEach, expect, test } from "vitest";
import { actContextOf } from "../testing/act-context.ts";
import { AskRig, OTHER_VM, settled, VM } from "../testing/ask-rig.ts";
import type { AskBook } from "./ask-book.ts";
import { ASK_LIMITS } from "./limits.ts";

let folder = "";
let rig: AskRig;
let book: AskBook;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "capsem-asks-"));
  rig = new AskRig(folder);
  book = await rig.open();
});
afterEach(async () => {
  await book.close();
  expect(rig.timers, "timers left").toBe(0);
  rmSync(folder, { recursive: true, force: true });
});

const me = actContextOf();
const agent = actContextOf({
  requester: { kind: "gateway", name: "gateway" },
  client: "claude-code",
  tokenId: "0a1b2c3d",
});
const failing = (kind: string, words = "") =>
  expect.objectContaining({ kind, message: expect.stringContaining(words) });
const states = () => rig.rows.map(({ state }) => state);

/** The one that waits. */
function waiting(): string {
  const [ask, ...more] = book.list("pending");
  if (ask === undefined || more.length > 0) throw new Error(`${more.length + 1} wait, or none`);
  return ask.id;
}

test("a held call goes on when it is approved, and every state is recorded before it counts", async () => {
  const asked = rig.asked();
  const seen: string[] = [];
  rig.onAppend = () => seen.push(`${book.list("pending").length} pending, ${rig.told.length} told`);
  const held = book.hold(asked, agent).then((end) => {
    seen.push("goes on");
    return end;
  });
  await settled();
  const [shown] = rig.told;
  expect(askInfo.parse(shown)).toMatchObject({
    state: "pending",
    vm_id: VM.id,
    vm_name: "dev",
    type: "process.exec",
    title: "exec curl example.com",
    rule_id: "profiles.rules.net",
    reason: "it reaches out",
    requester: "gateway (token 0a1b2c3d)",
    client: "claude-code",
    is_held: true,
    event_id: asked.event.identity.event_id,
  });
  const done = await book.resolve(waiting(), { approve: true, note: "fine" }, me);
  expect(await held).toMatchObject({ state: "approved", ask: { id: done.id, state: "approved" } });
  expect(done).toMatchObject({
    scope: "once",
    resolver: "user uid 1000",
    note: "fine",
    is_held: false,
    is_used: true,
  });
  expect(seen).toEqual(["0 pending, 0 told", "1 pending, 1 told", "goes on"]);
  expect(rig.rows).toMatchObject([
    {
      ledger: VM.id,
      state: "pending",
      client: "claude-code",
      token_id: "0a1b2c3d",
      trace_id: "1".repeat(32),
      resolver: null,
    },
    {
      ledger: VM.id,
      state: "approved",
      client: "claude-code",
      scope: "once",
      resolver: "user uid 1000",
      note: "fine",
    },
  ]);
  expect(rig.told.map(({ state }) => state)).toEqual(["pending", "approved"]);
});

test("a denied call is refused with who and why", async () => {
  const held = book.hold(rig.asked(), me);
  await book.resolve(waiting(), { approve: false, note: "not today" }, agent);
  expect(await held).toMatchObject({
    state: "denied",
    ask: { note: "not today", resolver: "gateway, client claude-code, token 0a1b2c3d", scope: null },
  });
  const again = book.hold(rig.asked(), me);
  await settled();
  // A denial is no answer to the next try.
  expect(book.list("pending")).toHaveLength(1);
  await book.resolve(waiting(), { approve: true }, me);
  expect(await again).toMatchObject({ state: "approved" });
});

test.each([
  { what: "someone watches", watchers: 1, timeLeftMs: null, waitMs: 300_000 },
  { what: "nobody watches", watchers: 0, timeLeftMs: null, waitMs: 30_000 },
  { what: "the call has less time", watchers: 1, timeLeftMs: 60_000, waitMs: 55_000 },
  { what: "the call has more time", watchers: 0, timeLeftMs: 600_000, waitMs: 30_000 },
  { what: "the call has no time", watchers: 1, timeLeftMs: 4_000, waitMs: 0 },
])("where $what, an ask waits for $waitMs ms", async ({ watchers, timeLeftMs, waitMs }) => {
  rig.watchers = watchers;
  const startMs = rig.nowMs;
  const held = book.hold(rig.asked(), actContextOf({ timeLeftMs }));
  await settled();
  expect(Date.parse(rig.told[0]?.expires_at ?? "") - startMs).toBe(waitMs);
  if (waitMs > 0) {
    await rig.pass(waitMs - 1);
    expect(waiting()).toBeDefined();
  }
  await rig.pass(1);
  expect(await held).toMatchObject({ state: "expired", ask: { state: "expired", resolver: null } });
  await expect(book.resolve(rig.told[0]?.id ?? "", { approve: true }, me)).rejects.toEqual(
    failing("wrong_state", "it expired at 20"),
  );
  expect(states()).toEqual(["pending", "expired"]);
});

test("a caller that leaves ends its ask, so that nobody approves what nobody waits for", async () => {
  const leaves = new AbortController();
  const held = book.hold(rig.asked(), actContextOf({ signal: leaves.signal }));
  const id = waiting();
  leaves.abort();
  expect(await held).toMatchObject({
    state: "cancelled",
    ask: { state: "expired", note: "the caller left" },
  });
  await expect(book.resolve(id, { approve: true }, me)).rejects.toEqual(
    failing("wrong_state", "(the caller left)"),
  );
  expect(rig.rows.at(-1)).toMatchObject({ state: "expired", note: "the caller left" });
  await expect(book.hold(rig.asked(), actContextOf({ signal: leaves.signal }))).rejects.toEqual(
    failing("cancelled"),
  );
});

test("an approval for other arguments, another VM or another rule does not count", async () => {
  const held = book.hold(rig.asked(), me);
  await book.resolve(waiting(), { approve: true, scope: "vm" }, me);
  await held;
  // The same act is covered.
  expect(await book.hold(rig.asked(), me)).toMatchObject({ state: "approved" });
  const other = rig.asked();
  for (const asked of [
    rig.asked("curl example.com/evil"),
    rig.asked("curl example.com", OTHER_VM),
    rig.asked("curl example.com", null),
    { ...other, digest: `${other.digest}x` },
    { ...other, digest: other.digest.slice(0, -1) },
    { ...other, vm: OTHER_VM },
    { ...other, decision: { ...other.decision, rule_id: "corp.rules.net" } },
  ]) {
    const next = book.hold(asked, me);
    await settled();
    await book.resolve(waiting(), { approve: false }, me);
    expect(await next).toMatchObject({ state: "denied" });
  }
});

test("an approval for the VM holds until the VM is gone, over a restart, and each use is recorded", async () => {
  const held = book.hold(rig.asked(), me);
  const { id } = await book.resolve(waiting(), { approve: true, scope: "vm" }, me);
  await held;
  await book.close();
  book = await rig.open();
  rig.nowMs += 48 * 3600_000;
  await book.sweep();
  const retry = rig.asked();
  expect(await book.hold(retry, agent)).toMatchObject({ state: "approved", ask: { id } });
  expect(rig.rows.at(-1)).toMatchObject({
    ask_id: id,
    state: "approved",
    scope: "vm",
    event_id: retry.event.identity.event_id,
    client: "claude-code",
  });
  rig.gone.add(VM.id);
  book.forgetVm(VM.id);
  void book.hold(rig.asked(), me);
  await settled();
  expect(waiting()).not.toBe(id);
});

test("a VM that goes ends what waits for it", async () => {
  const held = book.hold(rig.asked(), me);
  const other = book.hold(rig.asked("curl b", OTHER_VM), me);
  await settled();
  book.forgetVm(VM.id);
  expect(await held).toMatchObject({ state: "expired", ask: { note: "the VM is gone" } });
  await book.resolve(waiting(), { approve: true }, me);
  expect(await other).toMatchObject({ state: "approved" });
});

test("the same act asked for twice at once is one ask, and an approval for once serves one of them", async () => {
  const first = book.hold(rig.asked(), me);
  const second = book.hold(rig.asked(), agent);
  await settled();
  const id = waiting();
  await book.resolve(id, { approve: true }, me);
  expect(await first).toMatchObject({ state: "approved", ask: { id } });
  await settled();
  // The second asks again.
  expect(waiting()).not.toBe(id);
  await book.resolve(waiting(), { approve: false }, me);
  expect(await second).toMatchObject({ state: "denied" });
  expect(states()).toEqual(["pending", "pending", "approved", "pending", "denied"]);
});

test.each([
  { given: { approve: true, scope: "vm" } as const, state: "approved" },
  { given: { approve: true, scope: "always" } as const, state: "approved" },
  { given: { approve: false } as const, state: "denied" },
])("$given answers all calls that wait for it, each with a row", async ({ given, state }) => {
  const asked = [rig.asked(), rig.asked(), rig.asked()];
  const held = asked.map((each) => book.hold(each, me));
  await book.resolve(waiting(), given, me);
  expect((await Promise.all(held)).map((end) => end.state)).toEqual([state, state, state]);
  expect(rig.rows.slice(3).map((row) => row.event_id)).toEqual(
    asked.map(({ event }) => event.identity.event_id),
  );
});

test("of callers that share an ask one may leave, and one with less time may give up", async () => {
  const leaves = new AbortController();
  const first = book.hold(rig.asked(), actContextOf({ signal: leaves.signal }));
  const hasty = book.hold(rig.asked(), actContextOf({ timeLeftMs: 15_000 }));
  const patient = book.hold(rig.asked(), me);
  leaves.abort();
  expect(await first).toMatchObject({ state: "cancelled", ask: { state: "pending" } });
  await rig.pass(10_000);
  expect(await hasty).toMatchObject({ state: "expired", ask: { state: "pending", is_held: true } });
  await book.resolve(waiting(), { approve: true }, me);
  expect(await patient).toMatchObject({ state: "approved" });
});

test("of two who resolve at once one wins, and the other is told who was first", async () => {
  for (const [mine, theirs] of [
    [{ approve: true }, { approve: false }],
    [{ approve: false }, { approve: true, scope: "always" as const }],
    [{ approve: true, scope: "always" as const }, { approve: false }],
  ] as const) {
    const held = book.hold(rig.asked(`curl ${JSON.stringify([mine, theirs])}`), me);
    const id = waiting();
    const [one, other] = await Promise.allSettled([
      book.resolve(id, mine, me),
      book.resolve(id, theirs, agent),
    ]);
    expect(one.status).toBe("fulfilled");
    expect(other).toEqual({
      status: "rejected",
      reason: failing("wrong_state", `it was ${mine.approve ? "approved" : "denied"} by user uid 1000 at 20`),
    });
    expect(await held).toMatchObject({ state: mine.approve ? "approved" : "denied" });
  }
  expect(rig.edits).toHaveLength(1);
});

test("whoever comes second resolves it when the first one fails", async () => {
  const held = book.hold(rig.asked(), me);
  const writing = defer<void>();
  rig.writeRule = () => writing.promise;
  const first = book.resolve(waiting(), { approve: true, scope: "always" }, me);
  await settled();
  const second = book.resolve(waiting(), { approve: false }, agent);
  writing.reject(new Failure("disk_full", "Cannot write"));
  await expect(first).rejects.toEqual(failing("disk_full"));
  expect(await second).toMatchObject({ state: "denied" });
  expect(await held).toMatchObject({ state: "denied" });
});

test("an ask whose time comes while it is being resolved waits for that, and no longer", async () => {
  for (const isWritten of [true, false]) {
    const held = book.hold(rig.asked(), me);
    const writing = defer<void>();
    rig.writeRule = () => writing.promise;
    const resolving = book.resolve(waiting(), { approve: true, scope: "always" }, me);
    await settled();
    await rig.pass(300_000);
    expect(waiting()).toBeDefined();
    if (isWritten) writing.resolve();
    else writing.reject(new Failure("locked", "Cannot write"));
    await resolving.catch(() => undefined);
    expect(await held).toMatchObject({ state: isWritten ? "approved" : "expired" });
  }
});

test("a caller that leaves while its ask is being resolved leaves an approval that serves its retry", async () => {
  const leaves = new AbortController();
  const held = book.hold(rig.asked(), actContextOf({ signal: leaves.signal }));
  const ready = defer<void>();
  const id = waiting();
  rig.writeRule = () => ready.promise;
  const resolving = book.resolve(id, { approve: true, scope: "always" }, me);
  await settled();
  leaves.abort();
  expect(await held).toMatchObject({ state: "cancelled" });
  ready.reject(new Failure("locked", "Cannot write"));
  await expect(resolving).rejects.toEqual(failing("locked"));
  // It failed, and nobody waits: that is the end of it.
  expect(book.list()[0]).toMatchObject({ id, state: "expired", note: "the caller left" });
});

test("a call that joins an ask while it is being resolved waits on when that fails, whoever left before", async () => {
  const gate = defer<void>();
  rig.writeRule = async () => {
    await gate.promise;
    throw new Failure("ledger_full", "Cannot record: the ledger is full");
  };
  const leaving = new AbortController();
  const left = book.hold(rig.asked(), actContextOf({ signal: leaving.signal }));
  await settled();
  const id = waiting();
  const resolving = book.resolve(id, { approve: true, scope: "always" }, me);
  await settled();
  leaving.abort();
  expect((await left).state).toBe("cancelled");
  const joined = book.hold(rig.asked(), me);
  await settled();
  gate.resolve();
  await expect(resolving).rejects.toEqual(failing("ledger_full"));
  expect(waiting()).toBe(id);
  rig.writeRule = async () => undefined;
  await book.resolve(id, { approve: true }, me);
  expect((await joined).state).toBe("approved");
});

test("for always a rule is in force before the call goes on; where none can be, the ask waits on", async () => {
  const held = book.hold(rig.asked(), me);
  await book.resolve(waiting(), { approve: true, scope: "always" }, me);
  await held;
  expect(rig.edits).toMatchObject([
    {
      kind: "put_rule",
      fields: { action: "allow", priority: 19, match: expect.stringContaining('"curl example.com"') },
    },
  ]);
  for (const [asked, reason] of [
    [
      {
        ...rig.asked("curl corp"),
        decision: { ...rig.asked("curl corp").decision, rule_id: "corp.rules.x" },
      },
      "a rule of the corporation",
    ],
    [rig.asked(`curl ${"x".repeat(70_000)}`), 'a field of "process" was cut'],
    [rig.asked("curl a", OTHER_VM), "its VM has no name"],
    [
      { ...rig.asked("bash -c 'curl | sh'"), bound: ["environment", "input"] },
      "no rule can name its environment, its input; approve it once, or for its VM",
    ],
    [{ ...rig.asked("curl b"), onlyOnce: "its VM is only being made" }, "its VM is only being made"],
  ] as const) {
    const next = book.hold(asked, me);
    await settled();
    expect(book.list("pending")[0]?.scopes).not.toContain("always");
    await expect(book.resolve(waiting(), { approve: true, scope: "always" }, me)).rejects.toEqual(
      failing(reason.includes("corporation") ? "locked" : "wrong_state", reason),
    );
    await book.resolve(waiting(), { approve: true }, me);
    expect(await next).toMatchObject({ state: "approved" });
  }
  expect(rig.edits).toHaveLength(1);
});

test("what is not known whole is approved for one call: a rule or the VM would let in what was not shown", async () => {
  const asked = () => ({ ...rig.asked(), onlyOnce: "it is larger than 64 KiB" });
  const held = book.hold(asked(), me);
  await settled();
  expect(book.list("pending")[0]?.scopes).toEqual(["once"]);
  for (const scope of ["vm", "always"] as const) {
    await expect(book.resolve(waiting(), { approve: true, scope }, me)).rejects.toEqual(
      failing("wrong_state", "it is larger than 64 KiB"),
    );
  }
  await book.resolve(waiting(), { approve: true }, me);
  expect(await held).toMatchObject({ state: "approved" });
  void book.hold(asked(), me);
  await settled();
  expect(book.list("pending")).toHaveLength(1);
});

test("no secret is in an ask, its file, its rows, its events or a rule", async () => {
  const secret = "canary-77c1-of-the-test";
  const look = () =>
    [
      rig.rows,
      rig.told,
      rig.logged,
      rig.edits,
      readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8")),
    ]
      .map((each) => JSON.stringify(each))
      .join();
  const asked = () => rig.asked(`curl -H "x: ${secret}"`);
  const client = actContextOf({ client: secret });
  // The attack: while nobody has registered it, it is everywhere.
  const plain = book.hold(asked(), client);
  await book.resolve(waiting(), { approve: false, note: secret }, me);
  await plain;
  expect(look().split(secret).length).toBeGreaterThan(8);
  await book.close();
  rmSync(folder, { recursive: true, force: true });
  folder = mkdtempSync(join(tmpdir(), "capsem-asks-"));
  rig = new AskRig(folder);
  book = await rig.open();
  rig.redactor.add(`credential:blake3:${"ab".repeat(32)}`, secret);
  const held = book.hold(asked(), client);
  await settled();
  await expect(book.resolve(waiting(), { approve: true, scope: "always" }, client)).rejects.toEqual(
    failing("wrong_state", "held a secret"),
  );
  await book.resolve(waiting(), { approve: true, note: `it is ${secret}` }, client);
  await held;
  expect(look()).not.toContain(secret);
  expect(look()).toContain(`[credential:blake3:${"ab".repeat(32)}]`);
});

test("a title is one line in which nothing is unseen, whatever the guest wrote", async () => {
  const title = "exec ls\n\u001b[2J\u202egnp.exe\u2028ok";
  void book.hold({ ...rig.asked(), title }, me);
  void book.hold({ ...rig.asked("curl long"), title: "é".repeat(10_000) }, me);
  await settled();
  expect(rig.told[0]?.title).toBe("exec ls\\x0a\\x1b[2J\\u{202e}gnp.exe\\u{2028}ok");
  expect([...(rig.told[1]?.title ?? "")]).toHaveLength(ASK_LIMITS.titleCharactersMax);
});

test("a ledger that is away lets nothing be asked and nothing be approved, and is told later what ended", async () => {
  rig.ledger = "away";
  await expect(book.hold(rig.asked(), me)).rejects.toEqual(failing("ledger_away"));
  expect([book.list(), rig.told, readdirSync(folder)]).toEqual([[], [], []]);
  rig.ledger = "takes";
  const held = book.hold(rig.asked(), me);
  rig.ledger = "full";
  for (const approve of [true, false]) {
    await expect(book.resolve(waiting(), { approve }, me)).rejects.toEqual(failing("ledger_full"));
  }
  await rig.pass(300_000);
  // The end allows nothing, so it counts at once.
  expect(await held).toMatchObject({ state: "expired" });
  expect(states()).toEqual(["pending"]);
  await book.sweep();
  await book.sweep();
  expect(rig.logged.filter(({ message }) => message === "cannot record the end of an ask yet")).toHaveLength(
    1,
  );
  rig.ledger = "takes";
  await book.sweep();
  await book.sweep();
  expect(states()).toEqual(["pending", "expired"]);
});

test("an approval whose use cannot be recorded serves nothing, and is not used up", async () => {
  const held = book.hold(rig.asked(), me);
  await book.close();
  expect(await held).toMatchObject({ state: "cancelled", ask: { state: "pending" } });
  book = await rig.open();
  await book.resolve(waiting(), { approve: true }, me);
  rig.ledger = "away";
  await expect(book.hold(rig.asked(), me)).rejects.toEqual(failing("ledger_away"));
  rig.ledger = "takes";
  expect(await book.hold(rig.asked(), me)).toMatchObject({ state: "approved" });
});
