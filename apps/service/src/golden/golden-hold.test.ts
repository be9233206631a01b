import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Deferred, defer } from "@capsem/base";
import { afterEach, expect, test } from "vitest";
import { homeLayout } from "../home/layout.ts";
import { GOLDEN_LIMITS } from "../limits.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { OwnerStart } from "../owner/owner-start.ts";
import type { Powers } from "../powers.ts";
import { fakeMachinery, storeFakeGolden } from "../testing/fake-machinery.ts";
import { Launcher } from "../vm/launch.ts";
import { GoldenBook } from "./golden-book.ts";

const homes: string[] = [];
afterEach(() => {
  for (const home of homes.splice(0)) rmSync(home, { recursive: true, force: true });
});

const MEMORY_MIB = 512;
const imageDigest = "sha256:fake";

/** A launcher over stored goldens; `gates` hold the starts of their VMs, and `closed` has each closed descriptor. */
function startLauncher() {
  const home = mkdtempSync(join(tmpdir(), "capsem-golden-"));
  homes.push(home);
  const layout = homeLayout(home);
  mkdirSync(layout.vms, { recursive: true });
  const faked = fakeMachinery(layout.cache);
  const closed: number[] = [];
  const closeDescriptor = (fd: number) => {
    closed.push(fd);
    faked.closeDescriptor(fd);
  };
  const gates = new Map<string, Deferred<void>>();
  const given: number[] = [];
  const start = async ({ plan, grants }: OwnerStart) => {
    const { memory } = grants;
    if (memory !== undefined && "fd" in memory) given.push(memory.fd);
    await gates.get(plan.vm_id)?.promise;
    return {} as OwnerRun;
  };
  const powers = { monotonicMs: () => performance.now() } as unknown as Powers;
  const machinery = { ...faked, closeDescriptor };
  const book = new GoldenBook({ layout, powers, machinery, starter: { start }, log: () => undefined });
  const launcher = new Launcher(layout, machinery, book, { start });
  const launch = (id: string, cpus = 1) =>
    launcher.launch({
      ...{ id, imageDigest, cpus, memoryMib: MEMORY_MIB, pool: false },
      ...{ onLogLine: () => undefined, signal: new AbortController().signal },
    });
  const store = (cpus: number) => storeFakeGolden(layout.goldens, `${cpus}-${MEMORY_MIB}`);
  return { layout, book, launcher, launch, store, gates, given, closed };
}

test("a golden that is put away while a VM starts from it stays open until that VM has its copy", async () => {
  const { launch, store, gates, given, closed, book } = startLauncher();
  const gate = defer<void>();
  gates.set("vm_slow", gate);
  store(1);
  const slow = launch("vm_slow");
  await expect.poll(() => given.length, { timeout: 10_000 }).toBe(1);
  const [fd] = given;
  // Others use so many goldens that the first is the one to go.
  for (let cpus = 2; cpus <= GOLDEN_LIMITS.countMax + 1; cpus++) {
    store(cpus);
    await launch("vm_other", cpus);
  }
  expect(book.counts.ready).toBe(GOLDEN_LIMITS.countMax);
  // Its number may name another file by now, were it closed.
  expect(closed).not.toContain(fd);
  gate.resolve();
  await slow;
  await expect.poll(() => closed, { timeout: 10_000 }).toContain(fd);
  await book.close();
});

test("two VMs that find one golden corrupt have it built again once", async () => {
  const { launch, launcher, store, layout, book } = startLauncher();
  store(1);
  const [first, second] = [await launch("vm_one"), await launch("vm_two")];
  expect(first.golden).not.toBe(null);
  expect(second.golden).toBe(first.golden);
  if (first.golden !== null) await launcher.invalidateGolden(first.golden);
  expect(book.counts.ready).toBe(0);
  // The new one is there when the other VM says what it found.
  store(1);
  const third = await launch("vm_three");
  if (second.golden !== null) await launcher.invalidateGolden(second.golden);
  expect(book.counts.ready).toBe(1);
  expect(existsSync(join(layout.goldens, `1-${MEMORY_MIB}`, "COMPLETE"))).toBe(true);
  expect((await launch("vm_four")).golden).toBe(third.golden);
  await book.close();
});
