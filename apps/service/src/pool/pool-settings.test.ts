import { mkdtempSync, readdirSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { homeLayout } from "../home/layout.ts";
import { Pool, type PoolWant } from "./pool.ts";

const homes: string[] = [];
const pools: Pool[] = [];
afterEach(async () => {
  for (const pool of pools.splice(0)) await pool.close();
  for (const home of homes.splice(0)) rmSync(home, { recursive: true, force: true });
});

const small = { cpus: 1, memoryMib: 512 };
const large = { cpus: 2, memoryMib: 1024 };

/** A pool whose VMs are ready at once, and settings that change under it. */
function pooled(want: PoolWant) {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-pool-")));
  homes.push(home);
  const settings = { want };
  const launched: unknown[] = [];
  const launcher = {
    ground: async () => ({ image: { digest: "sha256:1" } }),
    createDisk: async () => undefined,
    async launch({ cpus, memoryMib }: { cpus: number; memoryMib: number }) {
      launched.push({ cpus, memoryMib });
      const run = {
        isLost: false,
        ready: Promise.resolve(),
        lost: new Promise(() => undefined),
        kill: async () => undefined,
      };
      return { run, readyTimeoutMs: 1_000 };
    },
  };
  const layout = homeLayout(home);
  const pool = new Pool({
    layout,
    powers: {
      monotonicMs: () => 0,
      availableMemoryBytes: () => 64 * 1024 ** 3,
      random: (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes)),
    } as never,
    launcher: launcher as never,
    log: () => undefined,
    want: () => settings.want,
  });
  pools.push(pool);
  pool.open();
  const warm = (count: number) => expect.poll(() => pool.count("warm"), { interval: 5 }).toBe(count);
  return {
    ...{ pool, launched, warm },
    folders: () => readdirSync(layout.vms).length,
    change(over: Partial<PoolWant>) {
      settings.want = { ...settings.want, ...over };
    },
  };
}

test("a smaller pool gives up what is too much, a larger one makes the rest", async () => {
  const { pool, change, warm, folders } = pooled({ shape: small, target: 3, allowsUnconfined: false });
  await warm(3);
  change({ target: 1 });
  expect(pool.target).toBe(1);
  pool.settingsChanged();
  expect(pool.count("warm")).toBe(1);
  await expect.poll(folders).toBe(1);
  change({ target: 2 });
  pool.settingsChanged();
  await warm(2);
  change({ target: 0 });
  pool.settingsChanged();
  expect([pool.count("warm"), pool.claim(small), pool.missedCount]).toEqual([0, null, 0]);
  await expect.poll(folders).toBe(0);
});

test.each<[what: string, over: Partial<PoolWant>]>([
  ["another size", { shape: large }],
  ["stricter confinement", { allowsUnconfined: false }],
])("after a change to %s no VM of before is given out, also before the pool is told", async (_what, over) => {
  const { pool, change, warm, launched } = pooled({ shape: small, target: 1, allowsUnconfined: true });
  await warm(1);
  change(over);
  expect(pool.claim(small)).toBeNull();
  expect(pool.count("warm")).toBe(1);
  pool.settingsChanged();
  expect(pool.count("warm")).toBe(0);
  await warm(1);
  const shape = over.shape ?? small;
  expect(launched).toEqual([small, shape]);
  expect(pool.claim(shape)?.of).toMatchObject({ shape, allowsUnconfined: over.allowsUnconfined ?? true });
});

test("what did not change leaves prepared VMs alone", async () => {
  const { pool, warm, launched } = pooled({ shape: small, target: 2, allowsUnconfined: false });
  await warm(2);
  pool.settingsChanged();
  expect([pool.count("warm"), launched.length]).toEqual([2, 2]);
});
