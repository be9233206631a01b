import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import type { LedgerHead } from "@capsem/api";
import { fillLater } from "@capsem/api/ledger-chain";
import { expect, onTestFinished, test } from "vitest";
import { act, intent, type WireRow } from "../../../packages/ledger/src/testing/rows.ts";
import {
  append,
  kindOf,
  LEDGER,
  newFolder,
  openLedger,
  readyLedger,
  signHead,
  verify,
} from "./testing/fixture.ts";
import { confinedWords, type LedgerProcess } from "./testing/ledger-process.ts";

const SOAK = process.env.CAPSEM_SOAK === "1";
const ROUNDS = SOAK ? 50 : 8;

/** Rows that a producer has not heard of yet, sent again to each new process: what the service does. */
class Producer {
  readonly rows: WireRow[] = [];
  acknowledged = 0;
  head: LedgerHead = { rows: 0, head: "" };

  make(acts: number): void {
    for (let count = 0; count < acts; count++) {
      const n = this.rows.length + 1;
      const command = `echo ${n} ${"x".repeat(n % 700)}`;
      this.rows.push(...act({ n, command, isInRow: n % 2 === 0 }));
    }
  }

  /** Until all are acknowledged or the process is gone. */
  async send(ledger: LedgerProcess, batch: number): Promise<void> {
    while (this.acknowledged < this.rows.length) {
      const rows = this.rows.slice(this.acknowledged, this.acknowledged + batch);
      const { rows: total, head } = await append(ledger, this.acknowledged + 1, rows);
      this.acknowledged += rows.length;
      this.head = { rows: total, head };
    }
  }
}

async function exported(ledger: LedgerProcess): Promise<unknown[][]> {
  const { stream } = await ledger.open("maintainer", "keep.export", { ledger: LEDGER });
  const parts: Buffer[] = [];
  for (let part = await stream.read(); part !== null; part = await stream.read())
    parts.push(Buffer.from(part));
  stream.end();
  const lines = Buffer.concat(parts).toString("utf8").trimEnd().split("\n").slice(1);
  return lines.map((line) => {
    const { table, row } = JSON.parse(line) as { table: string; row: unknown[] };
    const cells: unknown[] = [table, ...row];
    fillLater(cells);
    return cells;
  });
}

test(
  `killed ${ROUNDS} times under load, a ledger loses no row that it has acknowledged, and stays whole`,
  async () => {
    const folder = newFolder();
    const producer = new Producer();
    for (let round = 1; round <= ROUNDS; round++) {
      const ledger = await readyLedger({ folder });
      // The head that was last heard of is there, with what may have come after it.
      const checkpoint = producer.head.rows === 0 ? null : producer.head;
      const opened = await openLedger(ledger, { checkpoint, whole: true });
      expect(opened.rows).toBeGreaterThanOrEqual(producer.acknowledged);
      producer.make(300);
      const sent = producer.send(ledger, 7 + (round % 5) * 40).catch(() => "lost");
      // Somewhere in the middle: after a number of commits, not after a time.
      const goal = producer.acknowledged + 100 + ((round * 37) % 700);
      while (producer.acknowledged < goal && producer.acknowledged < producer.rows.length) {
        await new Promise((resolve) => setImmediate(resolve));
        if (ledger.child.exitCode !== null) break;
      }
      process.kill(ledger.pid, "SIGKILL");
      expect(await ledger.exited).toEqual({ code: null, signal: "SIGKILL" });
      await sent;
    }
    const ledger = await readyLedger({ folder });
    await openLedger(ledger, { checkpoint: producer.head, whole: true });
    await producer.send(ledger, 500);
    await signHead(ledger, producer.head);
    const result = await verify(ledger, producer.head);
    expect(result).toMatchObject({ is_whole: true, rows: producer.rows.length, fault: null });
    expect(await exported(ledger)).toEqual(producer.rows);
  },
  SOAK ? 600_000 : 240_000,
);

test("a killed ledger's rows come again and are skipped; what was open goes on under the same generation", async () => {
  const folder = newFolder();
  const first = await readyLedger({ folder });
  await openLedger(first);
  await append(first, 1, [...act({ n: 1 }), ...intent({ n: 2 })]);
  process.kill(first.pid, "SIGKILL");
  await first.exited;
  const second = await readyLedger({ folder });
  expect(await openLedger(second)).toMatchObject({ rows: 7, interrupted: 0 });
  expect(await append(second, 5, intent({ n: 2 }))).toMatchObject({ rows: 7 });
  process.kill(second.pid, "SIGKILL");
  await second.exited;
  const third = await readyLedger({ folder });
  expect(await openLedger(third, { generation: "g2" })).toMatchObject({ rows: 8, interrupted: 1 });
  expect(await verify(third)).toMatchObject({ is_whole: true, rows: 8 });
});

test("what the service signed is there after a kill, with its signature", async () => {
  const folder = newFolder();
  const first = await readyLedger({ folder });
  await openLedger(first);
  const { rows, head } = await append(first, 1, act({ n: 1 }));
  await signHead(first, { rows, head });
  process.kill(first.pid, "SIGKILL");
  await first.exited;
  const second = await readyLedger({ folder });
  expect(await verify(second, { rows, head })).toMatchObject({ is_whole: true, signed_rows: 4 });
});

/** Starts what it is told in its own name, says its pid, and lives until it is killed. */
const PARENT = `
  const { file, args, plan } = JSON.parse(process.argv[1]);
  const words = args.map((word) => (word === "PARENT" ? String(process.pid) : word));
  const child = require("node:child_process").spawn(file, words, { stdio: ["pipe", "ignore", "pipe", "pipe"], cwd: "/" });
  child.stdin.end(JSON.stringify(plan) + "\\n");
  child.stdio[3].resume();
  child.stderr.once("data", () => console.log(child.pid));
`;
const NOBODY = 4_242_424;

test("a ledger does not outlive its parent, also where that is killed", async () => {
  const folder = newFolder();
  const { file, args } = confinedWords(folder, [3], NOBODY);
  const plan = {
    ...{ folder, channels: [{ role: "reader", producer: "x", fd: 3 }] },
    ...{ vm_bytes_max: 1, allow_unconfined: false },
  };
  const words = args.map((word) => (word === String(NOBODY) ? "PARENT" : word));
  const told = JSON.stringify({ file, plan, args: words });
  const parent = spawn(process.execPath, ["-e", PARENT, told], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void parent.kill("SIGKILL"));
  const pid = await new Promise<string>((resolve) => {
    parent.stdout.once("data", (line) => resolve(String(line).trim()));
  });
  expect(existsSync(`/proc/${pid}`)).toBe(true);
  parent.kill("SIGKILL");
  await expect.poll(() => isAlive(pid), { timeout: 10_000 }).toBe(false);
});

function isAlive(pid: string): boolean {
  const path = `/proc/${pid}/stat`;
  return existsSync(path) && !/\) [ZX] /.test(readFileSync(path, "utf8"));
}

test("a full disk is said, loses no row that was taken, and is over when there is room", async ({ skip }) => {
  const folder = newFolder();
  if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", folder]).status !== 0) {
    const reason = "a full disk, because no small one can be mounted here";
    console.log(`skipped: ${reason}`);
    skip(reason);
  }
  onTestFinished(() => void spawnSync("umount", ["-l", folder]));
  const ledger = await readyLedger({ folder });
  await openLedger(ledger);
  const rows: WireRow[] = [];
  let kind = "done";
  for (let n = 1; kind === "done" && n < 200; n++) {
    const next = act({ n, stdoutPreview: "x".repeat(60_000) });
    kind = await kindOf(append(ledger, rows.length + 1, next));
    if (kind === "done") rows.push(...next);
  }
  expect(kind).toBe("disk_full");
  // Still, and with the same words.
  expect(
    await kindOf(append(ledger, rows.length + 1, act({ n: 500, stdoutPreview: "y".repeat(200_000) }))),
  ).toBe("disk_full");
  expect(await verify(ledger)).toMatchObject({ is_whole: true, rows: rows.length });
  expect(spawnSync("mount", ["-o", "remount,size=16m", folder]).status).toBe(0);
  const more = act({ n: 501 });
  expect((await append(ledger, rows.length + 1, more)).rows).toBe(rows.length + more.length);
  expect(await verify(ledger)).toMatchObject({ is_whole: true });
  expect(await exported(ledger)).toEqual([...rows, ...more]);
  expect(await ledger.end()).toEqual({ code: 0, signal: null });
}, 60_000);
