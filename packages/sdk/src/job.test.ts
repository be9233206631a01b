import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client } from "./client.ts";
import { asyncDispose } from "./dispose.ts";
import type { Job } from "./job.ts";
import { sh } from "./shell-words.ts";
import { type Rig, startWays, WAYS } from "./testing/ways.ts";
import type { Vm } from "./vm.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startWays();
});
afterAll(() => rig.close());

async function textsOf(job: Job): Promise<{ stdout: string; stderr: string }> {
  const texts = { stdout: "", stderr: "" };
  for await (const { stream, data } of job) texts[stream] += Buffer.from(data).toString("latin1");
  return texts;
}

describe.each(WAYS)("over the %s", (way) => {
  let client: Client;
  let vm: Vm;
  beforeAll(async () => {
    client = rig.client(way);
    vm = client.vm((await client.vms.create()).id);
  });
  afterAll(() => vm.delete());

  test("a job is iterated for its output and awaited for its end", async () => {
    const job = vm.stream({ command: "echo out; echo err >&2; exit 7" });
    expect(await textsOf(job)).toEqual({ stdout: "out\n", stderr: "err\n" });
    expect(await job).toMatchObject({ exit_code: 7, signal: null, timed_out: false });
    expect(await job.id).toMatch(/^job_/);
  });

  test("a job that is only awaited has its output discarded", async () => {
    expect(await vm.stream({ command: "head -c 5000000 /dev/zero; exit 2" })).toMatchObject({ exit_code: 2 });
  });

  test("leaving the iteration early still lets the job end", async () => {
    const job = vm.stream({ command: "head -c 3000000 /dev/zero; exit 4" });
    for await (const _ of job) break;
    expect((await job).exit_code).toBe(4);
  });

  test("stdin is written with back-pressure and closed", async () => {
    const job = vm.stream({ command: "sha256sum | cut -c1-8; wc -c < /dev/null", stdin: true });
    const block = new Uint8Array(300_000).fill(65);
    const texts = textsOf(job);
    for (let at = 0; at < 5; at += 1) await job.write(block);
    await job.closeStdin();
    expect((await texts).stdout).toMatch(/^[0-9a-f]{8}\n0\n$/);
  });

  test("a signal ends a job with its number", async () => {
    const job = vm.stream({ command: "echo ready; exec sleep 100" });
    for await (const _ of job) {
      await job.signal(15);
      break;
    }
    expect(await job).toMatchObject({ exit_code: null, signal: 15 });
  });

  test("an abort kills the job and rejects as cancelled", async () => {
    const abort = new AbortController();
    const job = vm.stream({ command: "echo ready; exec sleep 100" }, { signal: abort.signal });
    const id = await job.id;
    abort.abort();
    await expect(job).rejects.toMatchObject({ kind: "cancelled" });
    await expect.poll(async () => (await vm.jobs()).find((each) => each.id === id)?.signal).toBe(9);
  });

  test("a job is left and attached again at the byte where it was left", async () => {
    const job = vm.stream({ command: "echo one; read line; echo two $line", stdin: true });
    const id = await job.id;
    let seen = "";
    for await (const { data } of job) {
      seen += Buffer.from(data).toString();
      break;
    }
    const again = vm.attach(id, job.offset);
    await again.write(Buffer.from("x\n"));
    seen += (await textsOf(again)).stdout;
    expect(seen).toBe("one\ntwo x\n");
    job.detach();
  });

  test("output comes as lines, however it is cut", async () => {
    const job = vm.stream("printf 'one\\r\\ntw'; sleep 0.05; printf 'o\\n\\nlast'; printf 'err\\n' >&2");
    const lines: string[] = [];
    for await (const { stream, line } of job.lines()) lines.push(`${stream} ${line}`);
    expect(lines.filter((line) => line.startsWith("stdout"))).toEqual([
      "stdout one",
      "stdout two",
      "stdout ",
      "stdout last",
    ]);
    expect(lines).toContain("stderr err");
  });

  test("output and end come together, and what is not kept is said", async () => {
    expect(await vm.stream("printf grüße; echo err >&2; exit 3").output()).toMatchObject({
      stdout: "grüße",
      stderr: "err\n",
      exit_code: 3,
      truncated: false,
    });
    const large = await vm.stream("head -c 20000000 /dev/zero").output();
    expect([large.stdout.length, large.truncated]).toEqual([16 * 1024 * 1024, true]);
  });

  test("values in a command line are words, whatever is in them", async () => {
    const words = ["a b", "$HOME", "it's", "`x`", "", "*", "-n", "ü\n"];
    const job = vm.stream(sh`printf '<%s>' ${words} ${7}`);
    expect((await job.output()).stdout).toBe(`${words.map((word) => `<${word}>`).join("")}<7>`);
    expect(() => sh`cat ${"a\0b"}`).toThrow(/NUL/);
  });

  test("a job ends with the block that uses it", async () => {
    const job = vm.stream("echo ready; exec sleep 100");
    const id = await job.id;
    await job[asyncDispose]();
    expect(await job).toMatchObject({ signal: 9 });
    const left = vm.stream("exec sleep 100");
    const leftId = await left.id;
    left.detach();
    await left[asyncDispose]();
    const states = new Map((await vm.jobs()).map((each) => [each.id, each.state]));
    expect([states.get(id), states.get(leftId)]).toEqual(["done", "running"]);
    await vm.signalJob(leftId, 9);
  });

  test("a command that the VM does not have fails with its kind", async () => {
    const job = vm.stream({ argv: ["no-such-command"] });
    await expect(textsOf(job)).rejects.toMatchObject({ kind: "command_not_found" });
    await expect(job).rejects.toMatchObject({ kind: "command_not_found" });
  });

  test("a start over the limit of a frame opens no stream and leaves no rejection behind", () => {
    const before = rig.service.seen.length;
    const env = { A: "x".repeat(300_000) };
    expect(() => client.vm("vm_aaaaaaaaaaaaaaaa").stream({ command: "true", env })).toThrow(/limit 262144/);
    expect(rig.service.seen.slice(before)).toEqual([]);
  });

  test("a refused upgrade is the service's error", async () => {
    await expect(client.vm("vm_aaaaaaaaaaaaaaaa").stream({ command: "true" })).rejects.toMatchObject({
      kind: "vm_not_found",
      status: 404,
    });
  });

  test("a lost connection ends the job's wait as unavailable", async () => {
    const job = vm.stream({ command: "echo ready; exec sleep 100" });
    await job.id;
    for (const socket of rig.service.connections) socket.destroy();
    const peer = way === "socket" ? "the service" : "the gateway or the service behind it";
    await expect(job).rejects.toMatchObject({
      ...{ kind: "unavailable", outcome: "unknown" },
      message: `Cannot follow job: ${peer} is gone; how the command ended is unknown`,
    });
  });

  test("output that nobody takes stays at the sender", async () => {
    const job = vm.stream({ command: "head -c 100000000 /dev/zero" });
    await job.id;
    const before = process.memoryUsage().arrayBuffers;
    let bytes = 0;
    for await (const { data } of job) bytes += data.length;
    expect(bytes).toBe(100_000_000);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(400_000_000);
  });

  test("kept output is read in typed chunks from an offset", async () => {
    const job = vm.stream({ command: "printf abc; printf de >&2" });
    await job;
    let bytes = 0;
    for await (const { data } of vm.jobOutput(await job.id, { offset: 1, follow: true }))
      bytes += data.length;
    expect(bytes).toBe(4);
  });
});
