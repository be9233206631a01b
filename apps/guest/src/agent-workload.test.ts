import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { settles, TestHost } from "./test-host.ts";
import { AgentRig, skipReason } from "./test-rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: the first process of a workload: ${reason}`);

describe.skipIf(reason !== undefined)("the first process of a workload", { timeout: 60_000 }, () => {
  const rig = new AgentRig();
  let host: TestHost;

  beforeAll(async () => {
    await rig.start();
    host = new TestHost(await rig.accept("control"), await rig.accept("bulk"));
    await host.startGeneration();
    expect(await host.ask("mount_disk", {})).toMatchObject({ name: "ack" });
  }, 120_000);
  afterAll(() => rig.stop(), 60_000);

  const firstPid = () => {
    const text = readFileSync(rig.inside(`${rig.cgroup}/work/init/cgroup.procs`), "utf8").trim();
    return text === "" ? undefined : Number(text);
  };

  async function endWorkload(): Promise<void> {
    const pid = firstPid();
    if (pid !== undefined) process.kill(pid, "SIGKILL");
    const isOver = async () => firstPid() === undefined && rig.relayPid() === undefined;
    expect(await settles(isOver)).toBe(true);
  }

  async function prepareNext(): Promise<number> {
    expect(await host.ask("prepare_snapshot", { unmount: false })).toMatchObject({ name: "ack" });
    expect(await host.ask("thaw", {})).toMatchObject({ name: "ack" });
    return firstPid() ?? 0;
  }

  test("no second one is prepared while a workload runs", async () => {
    const running = firstPid();
    expect(await prepareNext()).toBe(running);
    expect((await host.run({ command: "echo on" })).stdout.toString()).toBe("on\n");
  });

  test("of the next one stands ready when the machine is saved, with the relay of its tools", async () => {
    await endWorkload();
    const prepared = await prepareNext();
    const relay = rig.relayPid();
    expect(prepared).toBeGreaterThan(1);
    expect(relay).toBeGreaterThan(1);
    await expect(host.run({ command: "true" })).rejects.toThrow(/wrong_state/);
    expect(await host.ask("mount_disk", {})).toMatchObject({ name: "ack" });
    expect([firstPid(), rig.relayPid()]).toEqual([prepared, relay]);
    expect((await host.run({ command: "hostname" })).stdout.toString()).toBe("capsem\n");
  });

  test("that ended while it waited is followed by another", async () => {
    await endWorkload();
    const prepared = await prepareNext();
    await endWorkload();
    expect(await host.ask("mount_disk", {})).toMatchObject({ name: "ack" });
    expect(firstPid()).not.toBe(prepared);
    expect((await host.run({ command: "hostname" })).stdout.toString()).toBe("capsem\n");
  });
});
