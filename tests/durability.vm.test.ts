import { readdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import type { HistoryEntry } from "@capsem/api";
import type { Vm } from "@capsem/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isAlive, type Rig, rounds, startRig, until } from "./support/rig.ts";

let rig: Rig;
let vm: Vm;
beforeAll(async () => {
  rig = await startRig();
  vm = await rig.create({ name: "recorded" });
});
afterAll(() => rig.stop());

/** The ledger process of the rig's service; null while there is none. */
function ledgerPid(): number | null {
  const service = rig.servicePid();
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || !isAlive(pid)) continue;
    try {
      const parent = Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
      if (parent === service && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("ledger.cjs"))
        return pid;
    } catch {
      // It ended while it was looked at.
    }
  }
  return null;
}

function killLedger(): void {
  const pid = ledgerPid();
  expect(pid).not.toBeNull();
  if (pid !== null) process.kill(pid, "SIGKILL");
}

async function historyOf(search: string): Promise<HistoryEntry[]> {
  const found: HistoryEntry[] = [];
  for await (const entry of vm.history({ search, limit: 500 })) found.push(entry);
  return found;
}

const outcomes = async (search: string) => (await historyOf(search)).map(({ outcome }) => outcome);

/** Three callers, each one command after the other, until they have so many or fail. */
async function load(mark: string, each: number, onDone: (command: string) => void): Promise<unknown[]> {
  const caller = async (name: number) => {
    for (let at = 0; at < each; at += 1) {
      const command = `: ${mark} ${name}-${at}.`;
      await vm.exec({ command, timeout_secs: 60 });
      onDone(command);
    }
  };
  const ends = await Promise.allSettled([0, 1, 2].map(caller));
  return ends.flatMap((end) => (end.status === "rejected" ? [end.reason] : []));
}

test("a ledger that is killed under load costs no caller an error, and loses nothing that was acknowledged", async () => {
  for (let round = 0; round < rounds(3, 50); round += 1) {
    const done: string[] = [];
    const kills = new Set([3, 7]);
    const errors = await load(`calm ${round},`, 5, (command) => {
      done.push(command);
      if (kills.has(done.length)) killLedger();
    });
    expect(errors).toEqual([]);
    const entries = await historyOf(`calm ${round},`);
    expect(entries.map(({ command }) => command).sort()).toEqual([...done].sort());
    expect(new Set(entries.map(({ outcome }) => outcome))).toEqual(new Set(["done"]));
    expect(await rig.client.ledgers.verify(vm.id)).toMatchObject({ is_whole: true, fault: null });
  }
});

test("a service that is killed under load has what was flushed, a whole chain, and its open acts interrupted", async () => {
  for (let round = 0; round < rounds(3, 50); round += 1) {
    const open = vm.exec(`sleep 60; : open ${round},`).catch((error: unknown) => error);
    const flushed: string[] = [];
    await load(`first ${round},`, 2, (command) => flushed.push(command));
    // Whoever reads, reads what was taken before: it is on the disk then.
    expect(await outcomes(`first ${round},`)).toEqual(Array(6).fill("done"));
    expect(await outcomes(`open ${round},`)).toEqual([null]);
    const pid = rig.servicePid();
    let count = 0;
    const errors = await load(`second ${round},`, 1_000, () => {
      count += 1;
      if (count === 4) process.kill(pid, "SIGKILL");
    });
    expect([errors.length, await open]).toEqual([3, expect.any(Error)]);
    await until("the service is gone", 10_000, () => !isAlive(pid));
    await rig.startService();
    expect((await rig.client.ledgers.verify(vm.id)).fault).toBeNull();
    await vm.start();
    const first = await historyOf(`first ${round},`);
    expect(first.map(({ command }) => command).sort()).toEqual([...flushed].sort());
    expect(first.every(({ outcome }) => outcome === "done")).toBe(true);
    expect(await outcomes(`open ${round},`)).toEqual(["interrupted"]);
    // What was on its way either never came to the ledger or has an end there.
    for (const outcome of await outcomes(`second ${round},`))
      expect(["done", "interrupted"]).toContain(outcome);
    expect(await vm.stats()).toMatchObject({ open: 0 });
    expect(await rig.client.ledgers.verify(vm.id)).toMatchObject({ is_whole: true });
  }
});

test("while the ledger is frozen nothing is lost, and when it goes on all of it is there", async () => {
  const pid = ledgerPid();
  if (pid === null) throw new Error("there is no ledger");
  process.kill(pid, "SIGSTOP");
  try {
    expect(await rig.sh(vm, "echo frozen")).toBe("frozen\n");
  } finally {
    process.kill(pid, "SIGCONT");
  }
  expect(await outcomes("echo frozen")).toEqual(["done"]);
});

test("while there is no ledger every act is refused as ledger_away, nothing of it is done, and it comes back", async () => {
  const ledgers = join(rig.home, "ledgers");
  renameSync(ledgers, `${ledgers}.away`);
  killLedger();
  await until("the ledger is away", 10_000, async () => (await rig.client.status()).ledger.state === "away");
  const away = { kind: "ledger_away", status: 503, retryable: true };
  const started = performance.now();
  const acts = [
    vm.exec("touch done-exec"),
    vm.files.write("done-file", Buffer.from("x")),
    rig.client.vms.create({}),
    rig.client.rules.put("r", { action: "block", match: 'vm.name == "x"' }),
    vm.delete(),
  ];
  for (const end of await Promise.allSettled(acts))
    expect(end).toMatchObject({ status: "rejected", reason: away });
  expect(performance.now() - started).toBeLessThan(5_000);
  const told = await rig.cli(["exec", "recorded", "true"]);
  expect(told).toMatchObject({ code: 125, stderr: expect.stringContaining("ledger") });
  // What only reads the service's own state needs none.
  expect(await rig.client.vms.list()).toMatchObject([{ name: "recorded", state: "running" }]);

  renameSync(`${ledgers}.away`, ledgers);
  await until("the ledger is back", 20_000, async () => (await rig.client.status()).ledger.state === "ok");
  expect(await rig.sh(vm, "ls")).toBe("");
  expect((await rig.client.rules.list()).rules.filter(({ source }) => source === "user")).toEqual([]);
  expect(await rig.client.ledgers.verify(vm.id)).toMatchObject({ is_whole: true });
});
