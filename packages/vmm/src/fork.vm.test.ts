import { createHash } from "node:crypto";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  readFileSync,
  readSync,
  truncateSync,
} from "node:fs";
import { hypervisorFilter } from "@capsem/jail";
import { builtPath } from "@capsem/native";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type HypervisorOptions, inheritedDescriptors, reopenedDescriptors } from "./hypervisor.ts";
import { onPortChange, pause, quit, restore, resume } from "./index.ts";
import { TEST_MEMORY_MIB, TestBench, type TestGolden, testImage } from "./testing/test-guest.ts";

const image = testImage();
const isRoot = process.getuid?.() === 0;
const OTHER_USER = 200_001;

type Launch = Pick<HypervisorOptions, "launcher" | "launcherArguments">;

/** The launcher as an owner uses it: another user, no path but the libraries' and QEMU's own, no new socket. */
function confined(options: Parameters<typeof inheritedDescriptors>[0]): Launch {
  const filter = hypervisorFilter(process.arch);
  const words = [
    ...["--parent", `${process.pid}`, "--uid", `${OTHER_USER}`, "--gid", `${OTHER_USER}`],
    ...["/usr", "/lib", "/lib64"].flatMap((path) => ["--exec", path]),
    ...["/usr", "/etc/ld.so.cache"].flatMap((path) => ["--read", path]),
    ...reopenedDescriptors(options).read.flatMap((number) => ["--read-fd", `${number}`]),
    ...inheritedDescriptors(options).flatMap((number) => ["--keep-fd", `${number}`]),
    ...(filter === null ? [] : ["--filter", Buffer.from(filter).toString("hex")]),
  ];
  return { launcher: builtPath("capsem-launch"), launcherArguments: [...words, "--"] };
}

describe.skipIf(image === undefined)("with a built image", () => {
  let bench: TestBench;
  let golden: TestGolden;

  beforeAll(async () => {
    bench = new TestBench(image ?? "");
    golden = await bench.golden(async ({ shell }) => {
      await shell.run("secret=from-the-golden; echo text >/golden-file");
    });
  });
  afterAll(() => bench.close());

  function memoryHash(): string {
    const hash = createHash("sha256");
    const piece = Buffer.alloc(1024 ** 2);
    for (let at = 0; at < TEST_MEMORY_MIB * 1024 ** 2; at += piece.length) {
      readSync(golden.memory, piece, 0, piece.length, at);
      hash.update(piece);
    }
    return hash.digest("hex");
  }

  test("two forks of one memory go on from the same point, diverge, and leave the golden alone", async () => {
    const before = memoryHash();
    const forks = await Promise.all([bench.fork(golden), bench.fork(golden)]);
    for (const [index, { shell }] of forks.entries()) {
      expect(await shell.run('echo "$secret"; cat /golden-file')).toBe("from-the-golden\ntext");
      await shell.run(`secret=fork-${index}; echo fork-${index} >/golden-file`);
    }
    for (const [index, { shell }] of forks.entries()) {
      expect(await shell.run('echo "$secret"; cat /golden-file')).toBe(`fork-${index}\nfork-${index}`);
    }
    expect(memoryHash()).toBe(before);
    const late = await bench.fork(golden);
    expect(await late.shell.run('echo "$secret"')).toBe("from-the-golden");
  });

  test("a paused fork stands still and goes on", async () => {
    const { hypervisor, shell } = await bench.fork(golden);
    await pause(hypervisor);
    expect(await hypervisor.qmp.call("query-status")).toMatchObject({ status: "paused", running: false });
    await resume(hypervisor);
    expect(await shell.run("echo on")).toBe("on");
  });

  test("after a restore every lane is told once the VM runs", async () => {
    const { hypervisor, shell } = await bench.start({ kind: "fork", ...golden });
    const lanes = new Map<string, boolean>();
    onPortChange(hypervisor, (lane, open) => lanes.set(lane, open));
    await restore(hypervisor, 5_000);
    expect(lanes.size).toBe(0);
    await resume(hypervisor);
    await shell.run("true");
    expect([...lanes].sort()).toEqual([
      ["bulk", false],
      ["control", true],
      ["traffic", false],
    ]);
  });

  test("sealed memory is refused to a hypervisor that would write it", async () => {
    const start = bench.start({ kind: "golden", memory: golden.memory, state: bench.path("other-state") });
    await expect(start).rejects.toMatchObject({
      kind: "hypervisor_exit",
      detail: expect.stringMatching(/Operation not permitted|can't map/),
    });
  });

  test("a disk joins with its content, and what was synced outlives the hypervisor", async () => {
    const disk = bench.disk("joined");
    for (const expected of ["", "one", "one\ntwo"]) {
      const { hypervisor, shell } = await bench.fork(golden, { disk });
      await shell.run("mount -t ext4 /dev/vdb /mnt");
      expect(await shell.run("cat /mnt/lines 2>/dev/null")).toBe(expected);
      await shell.run(`echo ${expected === "" ? "one" : "two"} >>/mnt/lines; sync`);
      hypervisor.kill();
      await hypervisor.ended;
    }
  });

  test("a disk that another VM has cannot join", async () => {
    const disk = bench.disk("locked");
    await bench.fork(golden, { disk });
    await expect(bench.fork(golden, { disk })).rejects.toMatchObject({
      kind: "hypervisor_refused",
      message: expect.stringContaining("lock"),
    });
  });

  test("a disk that is no qcow2 cannot join", async () => {
    await expect(bench.fork(golden, { disk: bench.path("root") })).rejects.toMatchObject({
      kind: "hypervisor_refused",
      message: expect.stringContaining("not in qcow2 format"),
    });
  });

  test("a truncated state fails the restore instead of hanging it", async () => {
    const state = bench.path("truncated-state");
    copyFileSync(golden.state, state);
    truncateSync(state, 100_000);
    const { hypervisor } = await bench.start({ kind: "fork", memory: golden.memory, state });
    await expect(restore(hypervisor, 5_000)).rejects.toMatchObject({
      kind: expect.stringMatching(/^hypervisor_(exit|refused)$/),
    });
    hypervisor.kill();
    expect((await hypervisor.ended).stderrTail).not.toBe("");
  });

  test("a guest that powers off ends its hypervisor in order", async () => {
    const { hypervisor, shell } = await bench.fork(golden);
    await expect(
      shell.run("echo 1 >/proc/sys/kernel/sysrq; echo o >/proc/sysrq-trigger; sleep 60"),
    ).rejects.toThrow("the lane closed");
    expect(await hypervisor.ended).toMatchObject({ exitCode: 0, signal: null });
  });

  test("quit ends a running fork in order", async () => {
    const { hypervisor } = await bench.fork(golden);
    await quit(hypervisor, 5_000);
    expect(await hypervisor.ended).toMatchObject({ exitCode: 0, signal: null });
  });

  test.skipIf(!isRoot || !existsSync(builtPath("capsem-launch")))(
    "another user without any path to the files runs a fork, and has no privilege",
    async () => {
      const disk = bench.disk("other-user");
      for (const path of [disk, golden.state, bench.path("root"), bench.path("agent")]) {
        chownSync(path, 0, 0);
        chmodSync(path, 0o600);
      }
      chmodSync(bench.folder, 0o700);
      const descriptors = {
        traffic: 0,
        kernel: 0,
        initrd: 0,
        root: 0,
        agent: 0,
        disk: 0,
        memory: 0,
        state: 0,
      };
      const { hypervisor, shell } = await bench.fork(golden, {
        disk,
        ...confined({ kind: "fork", descriptors }),
      });
      expect(await shell.run("mount -t ext4 /dev/vdb /mnt && echo mounted")).toBe("mounted");
      const status = readFileSync(`/proc/${hypervisor.pid}/status`, "utf8");
      const field = (name: string) => new RegExp(`^${name}:\\s*(\\S+)`, "m").exec(status)?.[1];
      expect([field("Uid"), field("Gid")]).toEqual([`${OTHER_USER}`, `${OTHER_USER}`]);
      expect([field("CapEff"), field("CapBnd")].map((mask) => Number.parseInt(mask ?? "1", 16))).toEqual([
        0, 0,
      ]);
      expect([field("NoNewPrivs"), field("Seccomp")]).toEqual(["1", "2"]);
    },
  );

  test.skipIf(!isRoot || !existsSync(builtPath("capsem-launch")))(
    "another user boots and saves a golden, whose forks run",
    async () => {
      const descriptors = { traffic: 0, kernel: 0, initrd: 0, root: 0, agent: 0, memory: 0, state: 0 };
      const own = new TestBench(image ?? "");
      try {
        const made = await own.golden(undefined, confined({ kind: "golden", descriptors }));
        const { shell } = await own.fork(made, confined({ kind: "fork", descriptors }));
        expect(await shell.run("echo on")).toBe("on");
      } finally {
        await own.close();
      }
    },
  );
});
