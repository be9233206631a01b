import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  type HypervisorOptions,
  inheritedDescriptors,
  reopenedDescriptors,
  startHypervisor,
} from "./hypervisor.ts";
import { onPortChange, quit, restore, resume, saveState } from "./index.ts";

/** Ends when it is told to: one that ends by itself may be gone before its answer is read. */
const UNTIL_TOLD = "read -r line <&4";
const SPEAK = `echo '{"QMP": {}}' >&3; read -r line <&3; echo '{"return": {}, "id": 1}' >&3`;

let folder: string;
let nothing: number;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-hypervisor-"));
  nothing = openSync("/dev/null", "r+");
});
afterEach(() => {
  closeSync(nothing);
  rmSync(folder, { recursive: true, force: true });
});

/** A shell in QEMU's place, with QEMU's descriptors. */
function options(script: string, rest: Partial<HypervisorOptions> = {}): HypervisorOptions {
  const qemuBinary = join(folder, "qemu");
  writeFileSync(qemuBinary, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return {
    kind: "cold",
    vmId: "vm_test",
    cpus: 1,
    memoryMib: 128,
    accelerator: "tcg",
    qemuBinary,
    launcher: null,
    launcherArguments: [],
    descriptors: { traffic: nothing, kernel: nothing, initrd: nothing, root: nothing, agent: nothing },
    diskCapacityBytes: 1024 ** 3,
    spawn,
    ...rest,
  };
}

test("a start resolves once QMP is negotiated, and its end tells the exit code", async () => {
  const hypervisor = await startHypervisor(options(`${SPEAK}; read -r line <&3; exit 3`));
  hypervisor.qmp.close();
  expect(await hypervisor.ended).toMatchObject({ exitCode: 3, signal: null, failure: null });
});

test("a hypervisor has nothing of our environment, and one word for its C library", async () => {
  const seen: unknown[] = [];
  const watched = ((file: string, args: string[], how: SpawnOptions) => {
    seen.push(how.env);
    return spawn(file, args, how);
  }) as typeof spawn;
  const hypervisor = await startHypervisor(options(`${SPEAK}; ${UNTIL_TOLD}`, { spawn: watched }));
  hypervisor.kill();
  await hypervisor.ended;
  expect(seen).toEqual([{ GLIBC_TUNABLES: "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1" }]);
});

test("the console, the error output and the lanes are apart", async () => {
  const script = `${SPEAK}; echo console; echo error >&2; echo control >&4; echo bulk >&5; read -r line <&4`;
  const hypervisor = await startHypervisor(options(script));
  const first = (stream: NodeJS.ReadableStream) =>
    new Promise<string>((resolve) => {
      stream.once("data", (chunk: Buffer) => resolve(chunk.toString().trim()));
    });
  const { console, stderr, control, bulk } = hypervisor;
  expect(await Promise.all([console, stderr, control, bulk].map(first))).toEqual([
    "console",
    "error",
    "control",
    "bulk",
  ]);
  control.write("go\n");
  expect((await hypervisor.ended).stderrTail).toBe("error\n");
});

test("a kill ends it at once, and may come twice and late", async () => {
  const hypervisor = await startHypervisor(options(`${SPEAK}; exec sleep 600`));
  hypervisor.kill();
  hypervisor.kill();
  expect(await hypervisor.ended).toMatchObject({ exitCode: null, signal: "SIGKILL" });
  hypervisor.kill();
});

test("a call that is pending when it ends fails", async () => {
  const hypervisor = await startHypervisor(options(`${SPEAK}; read -r line <&3; exit 0`));
  await expect(resume(hypervisor)).rejects.toMatchObject({ kind: "hypervisor_exit" });
});

test("a console that nobody reads does not hide the end", async () => {
  const flood = "i=0; while [ $i -lt 40 ]; do printf '%01024d' 0; i=$((i+1)); done";
  const hypervisor = await startHypervisor(options(`${SPEAK}; ${UNTIL_TOLD}; ${flood}; exit 5`));
  hypervisor.control.write("go\n");
  expect((await hypervisor.ended).exitCode).toBe(5);
});

test("one that outlives its control is killed", async () => {
  const hypervisor = await startHypervisor(options(`${SPEAK}; exec 3>&-; exec sleep 600`));
  expect(await hypervisor.ended).toMatchObject({ signal: "SIGKILL" });
});

test("one that says what is not QMP is killed", async () => {
  const hypervisor = await startHypervisor(
    options(`${SPEAK}; read -r line <&4; echo '[]' >&3; exec sleep 600`),
  );
  hypervisor.control.write("go\n");
  const { signal, failure } = await hypervisor.ended;
  expect(signal).toBe("SIGKILL");
  expect(failure?.kind).toBe("hypervisor_protocol");
});

test("an end before the negotiation fails the start, with the error output for the log", async () => {
  const start = startHypervisor(options("echo 'no such machine' >&2; exit 1"));
  await expect(start).rejects.toMatchObject({
    kind: "hypervisor_exit",
    message: "Cannot start the hypervisor: ended with 1",
    detail: "no such machine",
  });
});

test("a refused negotiation fails the start and leaves no process", async () => {
  const refuse = `echo '{"error": {"class": "x", "desc": "y"}, "id": 1}' >&3`;
  const start = startHypervisor(
    options(`echo '{"QMP": {}}' >&3; read -r line <&3; ${refuse}; exec sleep 600`),
  );
  await expect(start).rejects.toMatchObject({
    kind: "hypervisor_refused",
    message: "Cannot qmp_capabilities: y",
  });
});

test.each(["qemu", "launcher"])("a %s that cannot be run fails the start", async (missing) => {
  const path = join(folder, "absent");
  const change = missing === "qemu" ? { qemuBinary: path } : { launcher: path };
  await expect(startHypervisor({ ...options(""), ...change })).rejects.toMatchObject({
    kind: "hypervisor_missing",
    message: `Cannot start the hypervisor: "${path}" cannot be run`,
  });
});

test("a launcher comes first, then its arguments, then QEMU with its own", async () => {
  const launcher = join(folder, "launcher");
  writeFileSync(launcher, `#!/bin/sh\necho "$1 $2 $3 $4" >&2\n${SPEAK}\n${UNTIL_TOLD}\n`, { mode: 0o755 });
  const hypervisor = await startHypervisor(options("", { launcher, launcherArguments: ["--uid", "7"] }));
  hypervisor.control.write("go\n");
  const { stderrTail } = await hypervisor.ended;
  expect(stderrTail).toBe(`--uid 7 ${join(folder, "qemu")} -name\n`);
});

test("nothing of our environment reaches it", async () => {
  process.env.CAPSEM_SECRET_OF_TEST = "secret";
  const hypervisor = await startHypervisor(options(`env >&2; ${SPEAK}; ${UNTIL_TOLD}`));
  hypervisor.control.write("go\n");
  delete process.env.CAPSEM_SECRET_OF_TEST;
  expect((await hypervisor.ended).stderrTail).not.toContain("CAPSEM");
});

test("quit waits for the end, and kills at the time limit", async () => {
  const willing = await startHypervisor(options(`${SPEAK}; read -r line <&3; exit 0`));
  await quit(willing, 5_000);
  expect((await willing.ended).exitCode).toBe(0);
  const unwilling = await startHypervisor(options(`${SPEAK}; exec sleep 600`));
  await quit(unwilling, 50);
  expect((await unwilling.ended).signal).toBe("SIGKILL");
  await quit(unwilling, 50);
});

test("lane changes are told by lane, and what QEMU makes up is not", async () => {
  const event = (data: string) => `echo '{"event": "VSERPORT_CHANGE", "data": ${data}}' >&3`;
  const script = [
    SPEAK,
    "read -r line <&4",
    event('{"id": "lane-bulk", "open": true}'),
    event('{"id": "lane-other", "open": true}'),
    event('{"id": "lane-bulk", "open": "yes"}'),
    event('{"id": "lane-control", "open": false}'),
    UNTIL_TOLD,
  ].join("; ");
  const hypervisor = await startHypervisor(options(script));
  const seen: [string, boolean][] = [];
  onPortChange(hypervisor, (lane, open) => seen.push([lane, open]));
  hypervisor.control.write("go\n");
  await expect.poll(() => seen.length).toBe(2);
  hypervisor.control.write("go\n");
  await hypervisor.ended;
  expect(seen).toEqual([
    ["bulk", true],
    ["control", false],
  ]);
});

test("only what is needed is inherited", () => {
  const base = { traffic: 20, kernel: 21, initrd: 22, root: 23, agent: 24 };
  const saved = { ...base, memory: 25, state: 26 };
  expect(inheritedDescriptors({ kind: "cold", descriptors: base })).toEqual([3, 4, 5, 6, 7, 8, 9, 10]);
  expect(inheritedDescriptors({ kind: "golden", descriptors: saved })).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 12]);
  expect(inheritedDescriptors({ kind: "fork", descriptors: { ...saved, disk: 27 } })).toEqual([
    3, 4, 5, 6, 9, 10, 11, 12, 13,
  ]);
  expect(reopenedDescriptors({ kind: "fork", descriptors: saved })).toEqual({ read: [], write: [12] });
  expect(reopenedDescriptors({ kind: "cold", descriptors: base })).toEqual({ read: [7, 8], write: [] });
});

test.each(["fork", "golden"] as const)("a %s without memory is a bug", async (kind) => {
  await expect(startHypervisor(options("", { kind }))).rejects.toThrow(
    `a ${kind} start needs memory and state`,
  );
});

test("restoring and saving are for their kinds alone", async () => {
  const hypervisor = await startHypervisor(options(`${SPEAK}; ${UNTIL_TOLD}`));
  await expect(restore(hypervisor, 1)).rejects.toThrow("only a fork is restored");
  await expect(saveState(hypervisor, 1)).rejects.toThrow("only a golden is saved");
  hypervisor.control.write("go\n");
  await hypervisor.ended;
});

test("a process that may not be signalled any more is no end of ours", async () => {
  const rejections: unknown[] = [];
  const onRejection = (thrown: unknown) => rejections.push(thrown);
  process.on("unhandledRejection", onRejection);
  try {
    let child: ChildProcess | undefined;
    const watched = ((...words: Parameters<typeof spawn>) => {
      child = spawn(...words);
      return child;
    }) as typeof spawn;
    const hypervisor = await startHypervisor(options(`${SPEAK}; ${UNTIL_TOLD}`, { spawn: watched }));
    // As Node says it of each signal that the kernel refuses.
    const refused = () => child?.emit("error", new Error("kill EPERM"));
    expect(refused).not.toThrow();
    expect(refused).not.toThrow();
    await new Promise((resolve) => setImmediate(resolve));
    expect(rejections).toEqual([]);
    hypervisor.kill();
    expect(await hypervisor.ended).toMatchObject({ signal: "SIGKILL" });
  } finally {
    process.off("unhandledRejection", onRejection);
  }
});
