import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { HistoryEntry, SecurityEntry, TimelineEntry, VerifyResult, VmStatsDetail } from "@capsem/api";
import type { Vm } from "@capsem/sdk";
import { DatabaseSync } from "@photostructure/sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isAlive, type Rig, startRig, until } from "./support/rig.ts";
import { verifyExport } from "./support/stranger.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startRig({
    pool: 1,
    rules: [
      "[profiles.rules.no-marks]",
      'action = "block"',
      `match = 'process.command.contains("mark")'`,
      'reason = "no marks"',
    ].join("\n"),
  });
});
afterAll(() => rig.stop());

/** What a command prints as JSON; it must succeed. */
async function json<T>(...args: readonly string[]): Promise<T> {
  const { code, stdout, stderr } = await rig.cli([...args, "--json"]);
  expect([args, code, stderr]).toEqual([args, 0, stderr]);
  return JSON.parse(stdout.toString()) as T;
}

const timelineOf = async (vm: string, ...more: readonly string[]) =>
  (await json<{ entries: TimelineEntry[] }>("timeline", vm, ...more)).entries;

test("a VM's whole story can be read after it is gone, and an export of it verified by a stranger", async () => {
  const vm = await rig.create({ name: "story" });
  await vm.exec("echo one");
  await vm.exec({ command: "exit 3", timeout_secs: 30 });
  await expect(vm.exec("touch mark")).rejects.toMatchObject({ kind: "policy" });
  await vm.files.write("in.txt", Buffer.from("twelve bytes"));
  await vm.files.read("in.txt");
  await vm.files.rename("in.txt", "moved.txt");
  await vm.files.remove("moved.txt");
  await vm.stop();
  await vm.start();
  await vm.delete();
  expect(existsSync(join(rig.home, "vms", vm.id))).toBe(false);

  const entries = await timelineOf("story");
  const acts = entries.filter(({ layer }) => layer !== "rule");
  expect(acts.map(({ layer, outcome }) => `${layer} ${outcome}`)).toEqual([
    "lifecycle done",
    ...["exec done", "exec done", "exec blocked"],
    ...["file done", "file done", "file done", "file done"],
    ...["lifecycle done", "lifecycle done", "lifecycle done"],
  ]);
  const titles = ["create", "echo one", "exit 3", "touch mark", "in.txt", "in.txt", "moved.txt", "moved.txt"];
  for (const [at, title] of [...titles, "stop", "start", "delete"].entries())
    expect(acts[at]?.title).toContain(title);

  const history = (await json<{ entries: HistoryEntry[] }>("history", "story")).entries;
  expect(history).toMatchObject([
    { outcome: "done", exit_code: 0, stdout_bytes: 4 },
    { outcome: "done", exit_code: 3 },
    { outcome: "blocked", exit_code: null, rule_id: "profiles.rules.no-marks", reason: "no marks" },
  ]);
  const stats = await json<VmStatsDetail>("stats", "story");
  expect(stats).toMatchObject({
    exec: { count: 2, failed: 1 },
    file: { imports: 1, exports: 1, bytes_in: 12 },
    open: 0,
  });
  expect(stats.decisions.block).toBe(1);
  const { events } = await json<{ events: SecurityEntry[] }>("events", "story", "--action", "block");
  expect(events).toMatchObject([
    { type: "process.exec", event: { fields: { "process.command": "touch mark" } } },
  ]);

  // What belongs to one request has one trace: what was refused, and the rule that did.
  const [blocked] = events;
  const traced = await timelineOf("story", "--trace", blocked?.trace_id ?? "none");
  expect(traced.map(({ layer, event_id }) => [layer, event_id]).sort()).toEqual([
    ["exec", blocked?.event_id],
    ["rule", blocked?.event_id],
  ]);

  expect(await rig.cli(["ledger", "verify", "story"])).toMatchObject({ code: 0 });
  const file = join(rig.home, "story.jsonl");
  expect(await rig.cli(["ledger", "export", "story", "--output", file])).toMatchObject({ code: 0 });
  const key = readFileSync(join(rig.home, "keys", "ledger.pub"), "utf8");
  const text = readFileSync(file, "utf8");
  const { rows, signedRows } = verifyExport(text, key);
  expect([rows > 20, signedRows]).toEqual([true, rows]);
  expect(() => verifyExport(text.replace("exit 3", "exit 0"), key)).toThrow(/(hash|body) of row \d+ is/);
});

test("the story of a run is there when its VM is not, as one request with one trace", async () => {
  const before = new Set((await rig.client.ledgers.list()).map(({ vm_id }) => vm_id));
  expect(await rig.cli(["run", "echo ran; exit 4"])).toMatchObject({ code: 4 });
  const ledgers = (await rig.client.ledgers.list()).filter(({ vm_id }) => !before.has(vm_id));
  const [ledger] = ledgers;
  expect(ledgers).toMatchObject([{ has_vm: false, name: null }]);
  const entries = await timelineOf(ledger?.vm_id ?? "none");
  expect(entries.map(({ layer, outcome }) => `${layer} ${outcome}`)).toEqual([
    "lifecycle done",
    "exec done",
    "lifecycle done",
  ]);
  expect(entries[1]).toMatchObject({ details: { exit_code: 4 } });
  expect(new Set(entries.map(({ trace_id }) => trace_id)).size).toBe(1);
});

async function restarted(meanwhile: () => void): Promise<void> {
  const pid = rig.servicePid();
  process.kill(pid, "SIGTERM");
  await until("the service ended", 30_000, () => !isAlive(pid));
  meanwhile();
  await rig.startService();
}

const database = (vm: Vm) => join(rig.home, "ledgers", vm.id, "session.db");

function runSql(vm: Vm, sql: string): void {
  const db = new DatabaseSync(database(vm));
  db.exec(sql);
  db.close();
}

/** One byte of the file, where it holds this text last: before, a page may have what was moved to another one. */
function changeByte(vm: Vm, text: string): void {
  const bytes = readFileSync(database(vm));
  const at = bytes.lastIndexOf(text);
  expect(at).toBeGreaterThan(0);
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(database(vm), bytes);
}

test("a changed byte, a dropped row and rows that changed places are named, and their VMs do not start", async () => {
  const names = ["altered", "dropped", "reordered", "untouched"] as const;
  const vms: Record<string, Vm> = {};
  for (const name of names) {
    const vm = await rig.create({ name });
    await vm.exec("echo evidence-of-one; echo two");
    await vm.exec("echo three");
    await vm.stop();
    vms[name] = vm;
  }
  const { altered, dropped, reordered, untouched } = vms as Record<(typeof names)[number], Vm>;
  expect(await rig.cli(["ledger", "verify", "--all"])).toMatchObject({ code: 0 });
  await restarted(() => {
    changeByte(altered, "evidence-of-one");
    runSql(dropped, "DELETE FROM exec_events WHERE row_id = (SELECT MIN(row_id) FROM exec_events)");
    runSql(
      reordered,
      `CREATE TEMP TABLE t AS SELECT * FROM ledger_chain WHERE n IN (4, 7);
       DELETE FROM ledger_chain WHERE n IN (4, 7);
       INSERT INTO ledger_chain SELECT 11 - n, tbl, row_id, producer, generation, seq, row_hash, head FROM t`,
    );
  });

  const all = await rig.cli(["ledger", "verify", "--all", "--json"]);
  expect(all.code).toBe(1);
  const { ledgers } = JSON.parse(all.stdout.toString()) as { ledgers: VerifyResult[] };
  const faults = Object.fromEntries(ledgers.map(({ vm_id, fault }) => [vm_id, fault]));
  expect(faults[altered.id]).toMatchObject({ kind: "altered", row: expect.any(Number) });
  expect(["exec_events", "security_decision_events"]).toContain(faults[altered.id]?.table);
  expect(faults[dropped.id]).toMatchObject({ kind: "missing", table: "exec_events" });
  expect(faults[reordered.id]).toMatchObject({ kind: "reordered", row: 4 });
  expect([faults[untouched.id], faults.host]).toEqual([null, null]);

  for (const vm of [altered, dropped, reordered])
    await expect(vm.start()).rejects.toMatchObject({ kind: "ledger_broken" });
  expect((await rig.client.vms.list()).filter(({ state }) => state === "running")).toEqual([]);
  await untouched.start();
  expect(await rig.sh(untouched, "echo runs")).toBe("runs\n");

  const told = await rig.cli(["ledger", "verify", "altered", "--archive"]);
  expect(told).toMatchObject({ code: 0, stdout: expect.anything() });
  expect(told.stdout.toString()).toMatch(/row \d+ .*is altered.*set aside as/s);
  expect(readdirSync(join(rig.home, "ledgers", altered.id, "archive"))).toHaveLength(1);
  await altered.start();
  expect(await rig.sh(altered, "echo runs")).toBe("runs\n");
  expect(await rig.cli(["ledger", "verify", "altered"])).toMatchObject({ code: 0 });
  // A broken ledger never keeps its VM.
  for (const vm of Object.values(vms)) await vm.delete();
});

test("a full ledger refuses work in its VM alone; export and delete need no room", async () => {
  await rig.client.settings.edit([{ key: "ledger.vm_mib_max", value: 8 }]);
  const [full, other] = [await rig.create({ name: "full" }), await rig.create()];
  // Part of what it fills is a log that it writes back, so it finds room again for a while.
  let refusedSince: number | null = null;
  let round = 0;
  await until("it is full and stays so", 60_000, async () => {
    round += 1;
    // Refused, and recorded all the same: another long text each time, kept once in the event and once in the row.
    const command = `: mark ${round}${"x".repeat(48_000)}`;
    const calls = Array.from({ length: 16 }, (_, at) => full.exec(`${command}${at}`));
    const ends = await Promise.allSettled(calls);
    const isFull = ends.every((end) => end.status === "rejected" && end.reason.kind === "ledger_full");
    refusedSince = isFull ? (refusedSince ?? performance.now()) : null;
    return refusedSince !== null && performance.now() - refusedSince > 2_500;
  });
  await expect(full.exec("true")).rejects.toMatchObject({ kind: "ledger_full", status: 507 });
  await expect(full.files.write("a", Buffer.from("a"))).rejects.toMatchObject({ kind: "ledger_full" });
  expect(await rig.sh(other, "echo free")).toBe("free\n");
  const file = join(rig.home, "full.jsonl");
  expect(await rig.cli(["ledger", "export", "full", "--output", file])).toMatchObject({ code: 0 });
  verifyExport(readFileSync(file, "utf8"), readFileSync(join(rig.home, "keys", "ledger.pub"), "utf8"));
  await rig.client.settings.edit([{ key: "ledger.vm_mib_max", value: 64 }]);
  expect(await rig.sh(full, "echo again")).toBe("again\n");
  await rig.client.settings.edit([{ key: "ledger.vm_mib_max", value: 8 }]);
  await expect(full.exec("true")).rejects.toMatchObject({ kind: "ledger_full" });
  await full.stop();
  await full.delete();
  expect((await timelineOf("full")).at(-1)).toMatchObject({ layer: "lifecycle", outcome: "done" });
  await other.delete();
});
