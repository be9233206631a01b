import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defer } from "@capsem/base";
import { afterEach, expect, test } from "vitest";
import { homeLayout, vmFolder } from "../home/layout.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { Powers } from "../powers.ts";
import type { Launcher } from "../vm/launch.ts";
import { Pool, type PoolWant } from "./pool.ts";

const homes: string[] = [];
afterEach(() => {
  for (const home of homes.splice(0)) rmSync(home, { recursive: true, force: true });
});

/** A pool whose slots are folders, and whose owners do nothing but be killed. */
function startPool(want: () => PoolWant, onId: () => void = () => undefined) {
  const home = mkdtempSync(join(tmpdir(), "capsem-pool-"));
  homes.push(home);
  const layout = homeLayout(home);
  mkdirSync(layout.vms, { recursive: true });
  const seen = { launched: 0, killed: 0 };
  const launch = async ({ signal }: { signal: AbortSignal }) => {
    signal.throwIfAborted();
    seen.launched += 1;
    const kill = async () => {
      seen.killed += 1;
    };
    const run = { isLost: false, ready: Promise.resolve(), lost: defer().promise, kill };
    return { run: run as unknown as OwnerRun, golden: null, readyTimeoutMs: 60_000 };
  };
  const launcher = { ground: async () => ({ image: {} }), createDisk: async () => undefined, launch };
  const powers = {
    random(bytes: number) {
      onId();
      return crypto.getRandomValues(new Uint8Array(bytes));
    },
    monotonicMs: () => performance.now(),
    availableMemoryBytes: () => 16 * 1024 ** 3,
  };
  const pool = new Pool({
    layout,
    powers: powers as unknown as Powers,
    launcher: launcher as unknown as Launcher,
    log: () => undefined,
    want,
  });
  return { pool, layout, seen };
}

const SHAPE = { cpus: 1, memoryMib: 512 };
const WANT: PoolWant = { shape: SHAPE, target: 1, allowsUnconfined: false };

test("a pool that closes while the folder of a slot is made leaves neither slot nor folder", async () => {
  const closed = defer<void>();
  const { pool, layout, seen } = startPool(
    () => WANT,
    // A slot begins with its id: then its folder is under way.
    () => queueMicrotask(() => pool.close().then(closed.resolve, closed.reject)),
  );
  pool.open();
  await closed.promise;
  expect([pool.count("preparing"), pool.count("warm")]).toEqual([0, 0]);
  expect(seen.killed).toBe(seen.launched);
  expect(readdirSync(layout.vms)).toEqual([]);
});

test("a planned slot that nobody may have any more goes, before a VM takes its id", async () => {
  let want = WANT;
  const { pool, layout } = startPool(() => want);
  pool.open();
  await expect.poll(() => pool.count("warm"), { timeout: 10_000 }).toBe(1);
  const slot = pool.keep(SHAPE);
  if (slot === null) throw new Error("a warm slot is there to be kept");
  // The settings are others; the pool has not been told yet.
  want = { ...WANT, allowsUnconfined: true };
  expect(pool.claim(SHAPE, slot)).toBe(null);
  expect(slot.discarding).not.toBe(null);
  await slot.discarding;
  expect(existsSync(vmFolder(layout, slot.id).folder)).toBe(false);
  await pool.close();
});
