import { createHash, randomBytes } from "node:crypto";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { assert } from "@capsem/base";
import type { Vm } from "@capsem/sdk";
import { processesOf, processesOfVm, type Rig, startRig, until } from "../tests/support/rig.ts";
import { count, pssMib } from "./measure.ts";
import { type Figure, figure } from "./statistics.ts";

/** API create to the answer of argv `true`: correct only with exit code 0. */
async function createAndExec(rig: Rig): Promise<{ ms: number; vm: Vm }> {
  const started = performance.now();
  const vm = await rig.create();
  const { exit_code } = await vm.exec({ argv: ["true"] });
  const ms = performance.now() - started;
  assert(exit_code === 0, "true must succeed");
  return { ms, vm };
}

async function poolFull(rig: Rig, size: number): Promise<void> {
  await until("the pool is full", 120_000, async () => (await rig.client.status()).pool.warm >= size);
}

export async function createFigures(): Promise<Figure[]> {
  const full: number[] = [];
  const empty: number[] = [];
  const run: number[] = [];
  const pooled = await startRig({ pool: 1 });
  const bare = await startRig({ pool: 0 });
  try {
    await (await createAndExec(bare)).vm.delete();
    // Both sides in turn, so that a drift of the machine meets both.
    for (let round = 0; round < count(20, 3); round += 1) {
      await poolFull(pooled, 1);
      const fromPool = await createAndExec(pooled);
      full.push(fromPool.ms);
      await fromPool.vm.delete();
      await poolFull(pooled, 1);
      const started = performance.now();
      const { code } = await pooled.cli(["run", "true"]);
      run.push(performance.now() - started);
      assert(code === 0, "run must succeed");
      await poolFull(pooled, 1);
      const forked = await createAndExec(bare);
      empty.push(forked.ms);
      await forked.vm.delete();
    }
  } finally {
    await pooled.stop();
    await bare.stop();
  }
  return [
    figure("create → true, pool full", "ms", full, "p50 ≤ 300, p99 ≤ 600"),
    figure("create → true, pool empty", "ms", empty, "p50 ≤ 700"),
    figure("capsem run true, pool full", "ms", run, "p50 ≤ the first + 300"),
  ];
}

export async function execFigures(): Promise<Figure[]> {
  const rig = await startRig({ pool: 0 });
  try {
    const vm = await rig.create();
    for (let warm = 0; warm < 10; warm += 1) await vm.exec({ argv: ["true"] });
    const added: number[] = [];
    const whole: number[] = [];
    for (let round = 0; round < count(200, 10); round += 1) {
      const started = performance.now();
      const { exit_code, agent_ms } = await vm.exec({ argv: ["true"] });
      const ms = performance.now() - started;
      assert(exit_code === 0, "true must succeed");
      whole.push(ms);
      added.push(ms - agent_ms);
    }
    const transfers = await transferFigures(vm);
    const memory = memoryFigures(rig, vm);
    return [
      figure("exec, without the agent's time", "ms", added, "p50 ≤ 3"),
      figure("exec true, whole", "ms", whole, "28.5 / 108 elsewhere"),
      ...transfers,
      ...memory,
    ];
  } finally {
    await rig.stop();
  }
}

async function transferFigures(vm: Vm): Promise<Figure[]> {
  const mib = count(16, 4);
  const bytes = randomBytes(mib * 1024 * 1024);
  const digest = createHash("sha256").update(bytes).digest("hex");
  const push: number[] = [];
  const pull: number[] = [];
  for (let round = 0; round < count(20, 2); round += 1) {
    const started = performance.now();
    await vm.files.write("/dev/shm/bench", bytes.subarray(0, mib * 1024 * 1024));
    push.push(mib / ((performance.now() - started) / 1000));
    const reading = performance.now();
    const { bytes: back } = await vm.files.read("/dev/shm/bench");
    pull.push(mib / ((performance.now() - reading) / 1000));
    assert(createHash("sha256").update(back).digest("hex") === digest, "bytes must come back unchanged");
  }
  return [figure("file push", "MiB/s", push, "≥ 12"), figure("file pull", "MiB/s", pull, "≥ 80")];
}

function memoryFigures(rig: Rig, vm: Vm): Figure[] {
  const { owner, hypervisor } = processesOfVm(rig.home, vm.id);
  return [
    figure("owner, used", "MiB PSS", [pssMib(owner)], "≤ 120 beside guest memory"),
    figure("QEMU with the guest's memory, used", "MiB PSS", [pssMib(hypervisor)], "≤ 130 warmed"),
  ];
}

export async function cycleFigures(): Promise<Figure[]> {
  const rig = await startRig({ pool: 0 });
  try {
    const service = rig.servicePid();
    const descriptors = () => readdirSync(`/proc/${service}/fd`).length;
    const cycle = async () => {
      const { vm } = await createAndExec(rig);
      await vm.delete();
    };
    for (let warm = 0; warm < 5; warm += 1) await cycle();
    const before = { descriptors: descriptors(), pss: pssMib(service) };
    for (let round = 0; round < count(100, 5); round += 1) await cycle();
    const isClean = () => processesOf(rig.home).length === 1;
    await until("the last processes are gone", 5_000, isClean).catch(() => undefined);
    const left = processesOf(rig.home).length - 1 + readdirSync(join(rig.home, "vms")).length;
    return [
      figure("cycles: processes and folders left", "", [left], "0"),
      figure("cycles: descriptors more", "", [descriptors() - before.descriptors], "0"),
      figure("cycles: service memory, after / before", "ratio", [pssMib(service) / before.pss], "≤ 1.05"),
    ];
  } finally {
    await rig.stop();
  }
}
