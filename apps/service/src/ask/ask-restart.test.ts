import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { VmFacts } from "../boundary/parts.ts";
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
const idOf = (prefix: string, at: number) =>
  `vm_${prefix.repeat(14)}${"abcdefgh"[at >> 3]}${"abcdefgh"[at & 7]}`;
const newVmId = (at: number) => idOf("n", at);
const livingVmId = (at: number) => idOf("l", at);
const failing = (kind: string, words = "") =>
  expect.objectContaining({ kind, message: expect.stringContaining(words) });

/** The one that waits. */
function waiting(): string {
  const [ask, ...more] = book.list("pending");
  if (ask === undefined || more.length > 0) throw new Error(`${more.length + 1} wait, or none`);
  return ask.id;
}

test("an ask survives a restart with its deadline, and its approval serves one retry within ten minutes", async () => {
  void book.hold(rig.asked(), me);
  await settled();
  await rig.pass(100_000);
  const before = book.list();
  await book.close();
  book = await rig.open();
  expect(book.list()).toEqual(before.map((ask) => ({ ...ask, is_held: false })));
  const approved = await book.resolve(waiting(), { approve: true }, me);
  expect(approved).toMatchObject({ state: "approved", is_used: false });
  await book.close();
  book = await rig.open();
  await rig.pass(599_000);
  const [first, second] = [book.hold(rig.asked(), agent), book.hold(rig.asked(), me)];
  expect(await first).toMatchObject({ state: "approved", ask: { id: approved.id, is_used: true } });
  await settled();
  expect(waiting()).not.toBe(approved.id);
  await book.close();
  expect(await second).toMatchObject({ state: "cancelled" });
  book = await rig.open();
  // Used is used, also for the next service.
  void book.hold(rig.asked(), me);
  await settled();
  expect(book.list("pending")).toHaveLength(1);
});

test("an approval that nobody came back for in time is worth nothing", async () => {
  void book.hold(rig.asked(), me);
  await book.close();
  book = await rig.open();
  await book.resolve(waiting(), { approve: true }, me);
  await rig.pass(600_000);
  void book.hold(rig.asked(), me);
  await settled();
  expect(book.list("pending")).toHaveLength(1);
});

test("a retry after a restart waits for the ask that is there, and one whose time came meanwhile is over", async () => {
  void book.hold(rig.asked(), me);
  void book.hold(rig.asked("curl b"), actContextOf({ timeLeftMs: 10_000 }));
  await settled();
  await book.close();
  rig.nowMs += 60_000;
  book = await rig.open();
  await rig.pass(0);
  expect(book.list("expired")).toHaveLength(1);
  const id = waiting();
  const retry = book.hold(rig.asked(), agent);
  await settled();
  expect(book.list("pending")).toMatchObject([{ id, is_held: true }]);
  await book.resolve(id, { approve: true }, me);
  expect(await retry).toMatchObject({ state: "approved", ask: { id } });
});

test("an act that makes a VM is another one for each VM, and its approval serves the retry", async () => {
  const create = (vm: typeof VM) => ({ ...rig.asked("curl", vm), digest: "create" });
  const [one, other] = [book.hold(create(VM), me), book.hold(create(OTHER_VM), me)];
  await settled();
  expect(book.list("pending").map((ask) => ask.vm_id)).toEqual([OTHER_VM.id, VM.id]);
  await book.close();
  await Promise.all([one, other]);
  book = await rig.open();
  await book.resolve(book.list("pending")[0]?.id ?? "", { approve: true }, me);
  const third = { id: "vm_cccccccccccccccc", name: null, image: null };
  expect(await book.hold(create(third), me)).toMatchObject({ state: "approved" });
  expect(rig.rows.at(-1)).toMatchObject({ ledger: third.id, state: "approved" });
});

test("what nobody can have written is passed over, and files are this user's alone", async () => {
  const held = book.hold(rig.asked(), me);
  await settled();
  await book.close();
  await held;
  const [name = ""] = readdirSync(folder);
  expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600);
  const text = readFileSync(join(folder, name), "utf8");
  const other = name.replace(/.\.json$/, name.at(-6) === "a" ? "b.json" : "a.json");
  writeFileSync(join(folder, other), text);
  writeFileSync(join(folder, "ask_aaaaaaaaaaaaaaaa.json"), "{");
  writeFileSync(join(folder, "ask_bbbbbbbbbbbbbbbb.json.tmp"), text);
  writeFileSync(join(folder, "notes.txt"), "mine");
  book = await rig.open();
  expect(book.list()).toHaveLength(1);
  expect(rig.logged.map(({ file }) => file).sort()).toEqual([other, "ask_aaaaaaaaaaaaaaaa.json"].sort());
  expect(readdirSync(folder)).not.toContain("ask_bbbbbbbbbbbbbbbb.json.tmp");
  expect(readdirSync(folder)).toContain("notes.txt");
});

test("a clock that was set back keeps no ask longer than any may wait", async () => {
  void book.hold(rig.asked(), me);
  await settled();
  await book.close();
  rig.nowMs -= 3600_000;
  book = await rig.open();
  await rig.pass(ASK_LIMITS.waitMsMax);
  expect(book.list()).toMatchObject([{ state: "expired" }]);
});

test("a disk that takes no file is said, and the call is held all the same", async () => {
  rmSync(folder, { recursive: true });
  const held = book.hold(rig.asked(), me);
  await settled();
  await book.resolve(waiting(), { approve: true }, me);
  expect(await held).toMatchObject({ state: "approved" });
  expect(rig.logged[0]).toMatchObject({ level: "error", message: "cannot keep an ask on the disk" });
});

test("a used approval that the disk does not take serves nothing, so that none serves twice", async () => {
  void book.hold(rig.asked(), me);
  await book.close();
  book = await rig.open();
  await book.resolve(waiting(), { approve: true }, me);
  rmSync(folder, { recursive: true });
  await expect(book.hold(rig.asked(), me)).rejects.toThrow("ENOENT");
  void book.hold(rig.asked(), me);
  await settled();
  expect(book.list("pending")).toHaveLength(1);
});

test("there is a limit to what waits, of a VM and in all, and to calls that wait for one answer", async () => {
  const holdMany = (count: number, vm: typeof VM) => {
    const who = vm === VM ? me : actContextOf({ client: vm.id });
    for (let at = 0; at < count; at += 1) void book.hold(rig.asked(`curl ${at}`, vm), who);
  };
  holdMany(ASK_LIMITS.waitingOfVmMax, VM);
  await expect(book.hold(rig.asked("curl more"), me)).rejects.toEqual(failing("quota", "of this VM"));
  for (let call = 1; call < ASK_LIMITS.callsMax; call += 1) void book.hold(rig.asked("curl 0"), me);
  await expect(book.hold(rig.asked("curl 0"), me)).rejects.toEqual(failing("quota", "the same answer"));
  for (let vm = 1; book.list("pending").length < ASK_LIMITS.waitingMax; vm += 1) {
    holdMany(ASK_LIMITS.waitingOfVmMax, { ...VM, id: `vm_${"cdefghij"[vm]?.repeat(16)}` });
  }
  await expect(book.hold(rig.asked("curl", null), me)).rejects.toEqual(
    failing("quota", `limit ${ASK_LIMITS.waitingMax}`),
  );
  await book.resolve(book.list("pending")[0]?.id ?? "", { approve: false }, me);
  void book.hold(rig.asked("curl", null), me);
  expect(book.list("pending")).toHaveLength(ASK_LIMITS.waitingMax);
});

test.each<[string, (at: number) => [vm: VmFacts | null, client: string], string]>([
  ["about no VM", () => [null, "agent"], "about no VM"],
  ["about no VM, each under another name", (at) => [null, `agent ${at}`], "about no VM"],
  ["to make VMs, each another one", (at) => [{ ...OTHER_VM, id: newVmId(at) }, `agent ${at}`], "about no VM"],
  ["about many VMs", (at) => [{ ...OTHER_VM, id: livingVmId(at) }, "agent"], "of this requester"],
])("whoever asks without end %s leaves room for others, held or not", async (_, next, words) => {
  for (const asks of ["hold", "later"] as const) {
    const kept: unknown[] = [];
    for (let at = 0; at < ASK_LIMITS.waitingMax; at += 1) {
      const [vm, client] = next(at);
      if (vm?.id === newVmId(at)) rig.gone.add(vm.id);
      const asked = { ...rig.asked(`curl ${at}`, vm), isLater: asks === "later" };
      void book.hold(asked, actContextOf({ client, asks })).catch((thrown: unknown) => kept.push(thrown));
      await settled();
    }
    expect(kept[0]).toEqual(failing("quota"));
    expect(JSON.stringify(kept.map(String))).toContain(
      asks === "later" && words.includes("requester") ? "hold no call" : words,
    );
    expect(book.list("pending").length).toBeLessThanOrEqual(ASK_LIMITS.waitingMax / 2);
    // Another client's call, in another VM.
    void book.hold(rig.asked("curl mine"), me);
    await settled();
    expect(book.list("pending")[0]).toMatchObject({ vm_id: VM.id, client: me.client });
    await rig.pass(ASK_LIMITS.waitMsMax);
    expect(book.list("pending")).toEqual([]);
  }
});

test("asks that hold no call take half of the room at most, whoever makes them", async () => {
  const later = (at: number) =>
    book.hold(
      { ...rig.asked("curl", { ...OTHER_VM, id: livingVmId(at) }), isLater: true },
      actContextOf({ client: `agent ${at}`, asks: "later" }),
    );
  for (let at = 0; at < ASK_LIMITS.waitingLaterMax; at += 1) await later(at);
  await expect(later(ASK_LIMITS.waitingLaterMax)).rejects.toEqual(failing("quota", "that hold no call"));
  void book.hold(rig.asked(), me);
  expect(book.list("pending")).toHaveLength(ASK_LIMITS.waitingLaterMax + 1);
});

test("what is over is kept for a day, and a thousand at most", async () => {
  for (let at = 0; at < ASK_LIMITS.keptMax + 20; at += 1) {
    const held = book.hold(rig.asked(`curl ${at}`), me);
    book.forgetVm(VM.id);
    await held;
  }
  await book.sweep();
  expect(book.list()).toHaveLength(ASK_LIMITS.keptMax);
  expect(readdirSync(folder)).toHaveLength(ASK_LIMITS.keptMax);
  void book.hold(rig.asked("curl waits"), me);
  rig.nowMs += ASK_LIMITS.keptMs + 1;
  await book.sweep();
  expect(book.list()).toMatchObject([{ state: "pending" }]);
});

test.each([
  { what: "a denial with a scope", given: { approve: false, scope: "once" } as const, vm: VM },
  { what: "an approval for the VM of none", given: { approve: true, scope: "vm" } as const, vm: null },
])("$what is refused, and the ask waits on", async ({ given, vm }) => {
  void book.hold(rig.asked("curl x", vm), me);
  const kind = given.approve ? "wrong_state" : "invalid_input";
  await expect(book.resolve(waiting(), given, me)).rejects.toEqual(failing(kind));
  expect(book.list("pending")).toHaveLength(1);
});

test("an id of no ask is not found, and a service that stops asks nothing more", async () => {
  await expect(book.resolve("ask_aaaaaaaaaaaaaaaa", { approve: true }, me)).rejects.toEqual(
    failing("ask_not_found"),
  );
  const held = book.hold(rig.asked(), me);
  const id = waiting();
  await book.close();
  expect(await held).toMatchObject({ state: "cancelled", ask: { state: "pending", is_held: false } });
  await expect(book.hold(rig.asked(), me)).rejects.toEqual(failing("unavailable"));
  await expect(book.resolve(id, { approve: true }, me)).rejects.toEqual(failing("unavailable"));
});
