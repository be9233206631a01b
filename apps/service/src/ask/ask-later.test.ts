import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Asked } from "../boundary/parts.ts";
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
const agent = actContextOf({ requester: { kind: "gateway", name: "gateway" }, asks: "later" });
const failing = (kind: string, words = "") =>
  expect.objectContaining({ kind, message: expect.stringContaining(words) });
const states = () => rig.rows.map(({ state }) => state);
const later = (asked: Asked = rig.asked()) => book.hold({ ...asked, isLater: true }, agent);
/** An ask that a client has left open; its id. */
async function leftOpen(asked?: Asked): Promise<string> {
  const { state, ask } = await later(asked);
  expect(state).toBe("pending");
  return ask.id;
}
async function restart(): Promise<void> {
  await book.close();
  book = await rig.open();
}

test("an ask that is left open is answered at once, recorded and shown, and no call waits for it", async () => {
  const asked = rig.asked();
  const { state, ask } = await later(asked);
  expect(state).toBe("pending");
  expect(ask).toMatchObject({
    ...{ state: "pending", is_held: false, is_used: false, requester: "gateway" },
    event_id: asked.event.identity.event_id,
  });
  expect(book.list("pending")).toEqual([ask]);
  expect(rig.told).toEqual([ask]);
  expect(rig.rows).toMatchObject([{ ledger: VM.id, ask_id: ask.id, state: "pending" }]);
});

test("the same act again joins it, with a row of its own, and nobody is asked twice", async () => {
  const id = await leftOpen();
  const again = rig.asked();
  expect(await leftOpen(again)).toBe(id);
  expect(book.list()).toHaveLength(1);
  expect(rig.told).toHaveLength(1);
  expect(rig.rows.at(-1)).toMatchObject({
    ...{ ask_id: id, state: "pending" },
    event_id: again.event.identity.event_id,
  });
});

test.each([
  ["another command", () => rig.asked("curl example.com/evil")],
  ["another VM", () => rig.asked("curl example.com", OTHER_VM)],
  [
    "another rule",
    () => {
      const asked = rig.asked();
      return { ...asked, decision: { ...asked.decision, rule_id: "corp.rules.net" } };
    },
  ],
])("its approval serves not %s", async (_, other) => {
  const id = await leftOpen();
  await book.resolve(id, { approve: true }, me);
  expect(await leftOpen(other())).not.toBe(id);
  expect((await later()).state).toBe("approved");
});

test("approved for once it serves exactly one retry, of two that come at once as well", async () => {
  const id = await leftOpen();
  const done = await book.resolve(id, { approve: true, note: "fine" }, me);
  expect(done).toMatchObject({ state: "approved", scope: "once", is_used: false });
  const [first, second] = await Promise.all([later(), later()]);
  expect(first).toMatchObject({ state: "approved", ask: { id, is_used: true } });
  expect(second).toMatchObject({ state: "pending" });
  expect(second.ask.id).not.toBe(id);
  expect(states()).toEqual(["pending", "approved", "approved", "pending"]);
});

test("the retry that it serves may be of a client that would wait", async () => {
  const id = await leftOpen();
  await book.resolve(id, { approve: true }, me);
  expect(await book.hold(rig.asked(), me)).toMatchObject({ state: "approved", ask: { id } });
});

test("an approval for once that no retry comes for in time is worth nothing", async () => {
  const id = await leftOpen();
  await book.resolve(id, { approve: true }, me);
  await rig.pass(ASK_LIMITS.retryMs);
  expect(await leftOpen()).not.toBe(id);
});

test("approved for its VM it serves each retry, until the VM is gone", async () => {
  const id = await leftOpen();
  await book.resolve(id, { approve: true, scope: "vm" }, me);
  for (let times = 0; times < 3; times += 1)
    expect(await later()).toMatchObject({ state: "approved", ask: { id } });
  rig.gone.add(VM.id);
  book.forgetVm(VM.id);
  expect(await leftOpen()).not.toBe(id);
});

test("denied it serves nothing, and the same act again is another ask", async () => {
  const id = await leftOpen();
  await book.resolve(id, { approve: false, note: "not today" }, me);
  expect(book.list()[0]).toMatchObject({ id, state: "denied", note: "not today" });
  const next = await leftOpen();
  expect(next).not.toBe(id);
  await expect(book.resolve(id, { approve: true }, me)).rejects.toEqual(failing("wrong_state", "was denied"));
  expect(states()).toEqual(["pending", "denied", "pending"]);
});

test.each([
  { watchers: 0, timeLeftMs: null },
  { watchers: 0, timeLeftMs: 6_000 },
  { watchers: 1, timeLeftMs: 1_000 },
])("it waits for asks.timeout_secs whoever watches and whatever is left of its call: %j", async (given) => {
  rig.watchers = given.watchers;
  const context = actContextOf({ asks: "later", timeLeftMs: given.timeLeftMs });
  const { ask } = await book.hold({ ...rig.asked(), isLater: true }, context);
  expect(Date.parse(ask.expires_at) - Date.parse(ask.created_at)).toBe(300_000);
  await rig.pass(299_999);
  expect(book.list("pending")).toHaveLength(1);
  await rig.pass(1);
  expect(book.list()[0]).toMatchObject({ id: ask.id, state: "expired" });
  await expect(book.resolve(ask.id, { approve: true }, me)).rejects.toEqual(
    failing("wrong_state", "it expired"),
  );
  expect(states()).toEqual(["pending", "expired"]);
  expect(await leftOpen()).not.toBe(ask.id);
});

test("a restart in between leaves ask, deadline and approval as they were, and what was used is used", async () => {
  const id = await leftOpen();
  const before = book.list();
  await rig.pass(100_000);
  await restart();
  expect(book.list()).toEqual(before);
  expect(await leftOpen()).toBe(id);
  await book.resolve(id, { approve: true }, me);
  await restart();
  expect(await later()).toMatchObject({ state: "approved", ask: { id } });
  await restart();
  const next = await leftOpen();
  expect(next).not.toBe(id);
  await rig.pass(300_000);
  expect(book.list("pending")).toEqual([]);
});

test("a caller that waits for it elsewhere, and leaves or has no time, does not end it", async () => {
  const id = await leftOpen();
  const leaves = new AbortController();
  const left = book.hold(rig.asked(), actContextOf({ signal: leaves.signal }));
  await settled();
  expect(book.list("pending")).toMatchObject([{ id, is_held: true }]);
  leaves.abort();
  expect(await left).toMatchObject({ state: "cancelled", ask: { id, state: "pending" } });
  const hasty = book.hold(rig.asked(), actContextOf({ timeLeftMs: 15_000 }));
  await rig.pass(10_000);
  expect(await hasty).toMatchObject({ state: "expired", ask: { id, state: "pending" } });
  await book.resolve(id, { approve: true }, me);
  expect((await later()).state).toBe("approved");
});

test("of a call that waits for the same act, an approval for once serves that one, and the other is asked again", async () => {
  const held = book.hold(rig.asked(), me);
  await settled();
  const id = await leftOpen();
  await book.resolve(id, { approve: true }, me);
  expect(await held).toMatchObject({ state: "approved", ask: { id, is_used: true } });
  expect(await leftOpen()).not.toBe(id);
});

test("its VM's end is its end", async () => {
  await leftOpen();
  book.forgetVm(VM.id);
  expect(book.list()[0]).toMatchObject({ state: "expired", note: "the VM is gone" });
});

test("it counts among those that wait, so that a model in a loop asks no person without end", async () => {
  const { waitingLaterMax, waitingOfVmMax } = ASK_LIMITS;
  for (let at = 0; at < waitingOfVmMax; at += 1) await leftOpen(rig.asked(`curl ${at}`));
  await expect(later(rig.asked("curl more"))).rejects.toEqual(failing("quota", `limit ${waitingOfVmMax}`));
  // What is there already may be asked for again and again.
  for (let times = 0; times < 40; times += 1) await leftOpen(rig.asked("curl 0"));
  for (let at = waitingOfVmMax; at < waitingLaterMax; at += 1) {
    const id = `vm_${"abcdefghijklmnop".repeat(2).slice(at % 16, (at % 16) + 16)}`;
    await leftOpen(rig.asked(`curl ${at}`, { ...VM, id }));
  }
  await expect(later(rig.asked("curl more", null))).rejects.toEqual(
    failing("quota", `limit ${waitingLaterMax}`),
  );
  await rig.pass(300_000);
  await leftOpen(rig.asked("curl more"));
});

test("nothing is asked where it cannot be recorded, where its caller has left, or where the service stops", async () => {
  rig.ledger = "away";
  await expect(later()).rejects.toEqual(failing("ledger_away"));
  rig.ledger = "takes";
  const left = actContextOf({ asks: "later", signal: AbortSignal.abort() });
  await expect(book.hold({ ...rig.asked(), isLater: true }, left)).rejects.toEqual(failing("cancelled"));
  await book.close();
  await expect(later()).rejects.toEqual(failing("unavailable"));
  expect([book.list(), rig.told, rig.rows]).toEqual([[], [], []]);
});
