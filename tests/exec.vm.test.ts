import type { Vm } from "@capsem/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, rounds, startRig, until } from "./support/rig.ts";

let rig: Rig;
let vm: Vm;
beforeAll(async () => {
  rig = await startRig();
  vm = await rig.create();
});
afterAll(() => rig.stop());

test("exec straight after create waits for readiness", async () => {
  const fresh = await rig.create();
  expect((await fresh.exec({ argv: ["true"] })).exit_code).toBe(0);
  await fresh.delete();
});

test("stdout and stderr stay apart, and a non-zero exit is a result", async () => {
  const result = await vm.exec({ command: "echo out; echo err >&2; exit 3" });
  expect(result).toMatchObject({
    exit_code: 3,
    signal: null,
    stdout: { data: "out\n" },
    stderr: { data: "err\n" },
  });
});

test("bytes that are no UTF-8 come as base64", async () => {
  const result = await vm.exec({ command: "printf '\\377\\000x'" });
  expect(result.stdout).toEqual({
    encoding: "base64",
    data: Buffer.from([255, 0, 120]).toString("base64"),
    truncated: false,
  });
});

test("a multibyte character split over chunks survives", async () => {
  const job = vm.stream({ command: "printf '\\342'; sleep 0.3; printf '\\230\\203'" });
  const parts: Uint8Array[] = [];
  for await (const { data } of job) parts.push(data);
  expect(Buffer.concat(parts).toString()).toBe("☃");
});

test("a command that is not there is 127, one that may not run 126", async () => {
  expect((await vm.exec({ command: "no-such-command" })).exit_code).toBe(127);
  expect((await vm.exec({ command: "/etc/passwd" })).exit_code).toBe(126);
  await expect(vm.exec({ argv: ["no-such-command"] })).rejects.toMatchObject({ kind: "command_not_found" });
});

test("output above the cap is truncated, said so, and neither side grows", async () => {
  const result = await vm.exec({ command: `timeout ${rounds(5, 60)} yes 0123456789`, timeout_secs: 90 });
  expect(result.exit_code).toBe(124);
  expect(result.stdout.truncated).toBe(true);
  expect(result.stdout.data.length).toBeLessThanOrEqual(1_048_576);
});

test("64 parallel execs on one CPU all finish", async () => {
  const results = await Promise.all(
    Array.from({ length: 64 }, (_, index) => vm.exec({ argv: ["echo", String(index)] })),
  );
  expect(results.map(({ stdout }) => Number(stdout.data))).toEqual(
    Array.from({ length: 64 }, (_, index) => index),
  );
});

test("an exec with a background child returns when its own process ends", async () => {
  const started = performance.now();
  const result = await vm.exec({ command: "sleep 300 & echo $!" });
  expect(performance.now() - started).toBeLessThan(10_000);
  expect(await rig.sh(vm, `kill -0 ${result.stdout.data.trim()} && echo lives`)).toBe("lives\n");
});

test("stdin can be fed and closed", async () => {
  const fed = await vm.exec({ command: "wc -c", stdin: { encoding: "utf8", data: "x".repeat(100_000) } });
  expect(fed.stdout.data.trim()).toBe("100000");
  const job = vm.stream({ command: "cat", stdin: true });
  const seen: Uint8Array[] = [];
  const reading = (async () => {
    for await (const { data } of job) seen.push(data);
  })();
  await job.write(Buffer.from("first "));
  await job.write(Buffer.from("second"));
  await job.closeStdin();
  await reading;
  expect(Buffer.concat(seen).toString()).toBe("first second");
  expect((await job).exit_code).toBe(0);
});

test("a time limit kills the whole process tree", async () => {
  const result = await vm.exec({ command: "(setsid sleep 4711 &) ; sleep 4711", timeout_secs: 1 });
  expect(result.timed_out).toBe(true);
  expect((await vm.exec({ command: "pgrep -f 'sleep 471[1]'" })).exit_code).toBe(1);
});

test("cancelling an exec kills its process tree in the guest", async () => {
  const abort = new AbortController();
  const asked = vm.exec({ command: "setsid sleep 4712 & sleep 4712" }, { signal: abort.signal });
  await until(
    "the command runs",
    10_000,
    async () => (await vm.exec({ command: "pgrep -f 'sleep 471[2]'" })).exit_code === 0,
  );
  abort.abort();
  await expect(asked).rejects.toMatchObject({ kind: "cancelled" });
  await until(
    "the tree is gone",
    10_000,
    async () => (await vm.exec({ command: "pgrep -f 'sleep 471[2]'" })).exit_code === 1,
  );
});

test("a dropped client attaches again and gets what it missed", async () => {
  const first = vm.stream({ command: "for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done" });
  const id = await first.id;
  for await (const _ of first) break;
  const offset = 2;
  first.detach();
  const again = vm.attach(id, offset);
  const parts: Uint8Array[] = [];
  for await (const { data } of again) parts.push(data);
  expect(Buffer.concat(parts).toString()).toBe("2\n3\n4\n5\n6\n");
});

test("a job that runs out of memory says so, with limit and peak", async () => {
  const hog = 'python3 -c "x=[bytearray(1<<20) for _ in range(4000)]"';
  const result = await vm.exec({ command: `exec ${hog}`, timeout_secs: 60 });
  expect(result.signal).toBe(9);
  expect(result.out_of_memory?.limit_bytes).toBeGreaterThan(200 * 1024 * 1024);
  expect(result.out_of_memory?.peak_bytes).toBeGreaterThan(100 * 1024 * 1024);
});

test("sudo works in the workload, and root is still inside it", async () => {
  expect(await rig.sh(vm, "sudo id -u")).toBe("0\n");
  expect((await vm.exec({ command: "sudo sh -c 'echo b > /proc/sysrq-trigger'" })).exit_code).not.toBe(0);
  expect((await vm.exec({ command: "sudo mount -t tmpfs x /mnt" })).exit_code).not.toBe(0);
  expect(
    (await vm.exec({ command: "sudo mknod /tmp/disk b 254 0 && sudo head -c1 /tmp/disk" })).exit_code,
  ).not.toBe(0);
  expect(await rig.sh(vm, "ps -e -o args= | grep -c '[g]uest.cjs' || true")).toBe("0\n");
});

test("an environment of nearly a mebibyte reaches the guest, and a larger one is refused with the numbers", async () => {
  const entry = "wört ".repeat(16_000);
  const env = Object.fromEntries(Array.from({ length: 10 }, (_, index) => [`BIG_${index}`, entry]));
  const large = await rig.create({ env });
  expect(await rig.sh(large, 'env | grep -c ^BIG_; printf %s "$BIG_7" | wc -c')).toBe(
    `10\n${Buffer.byteLength(entry)}\n`,
  );
  await large.delete();
  const tooLarge = {
    ...env,
    ...Object.fromEntries(Array.from({ length: 10 }, (_, index) => [`MORE_${index}`, entry])),
  };
  await expect(rig.client.vms.create({ env: tooLarge })).rejects.toMatchObject({
    kind: "invalid_input",
    message: expect.stringContaining("1048576"),
  });
});

test("a command too long for one message is refused with the limit and the way out", async () => {
  await expect(vm.exec({ command: `echo ${"x".repeat(60_000)}` })).rejects.toMatchObject({
    kind: "too_large",
    message: expect.stringMatching(/limit 49152; send it by stdin/),
  });
});

test("a fresh VM has nothing in its environment that nobody asked for", async () => {
  const fresh = await rig.create();
  expect(await rig.sh(fresh, "env | cut -d= -f1 | sort | tr '\\n' ' '")).toBe(
    "HOME LANG LOGNAME PATH PWD SHELL SHLVL USER _ ",
  );
  await fresh.delete();
});

test("output larger than what is kept is complete for a reader that keeps up", async () => {
  const job = vm.stream({ command: "head -c 15000000 /dev/zero" });
  let bytes = 0;
  for await (const { data } of job) bytes += data.length;
  expect([bytes, (await job).truncated]).toEqual([15_000_000, false]);
});
