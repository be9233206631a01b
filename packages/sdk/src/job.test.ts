import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Job } from "./job.ts";
import { createNodeClient } from "./node.ts";
import { type FixtureService, startFixtureService } from "./testing/index.ts";
import type { Vm } from "./vm.ts";

const home = mkdtempSync(join(tmpdir(), "sdk-job-"));
const client = createNodeClient({ home });
let service: FixtureService;
let vm: Vm;

beforeAll(async () => {
  service = await startFixtureService({ home });
  vm = client.vm((await client.vms.create()).id);
});
afterAll(async () => {
  client.close();
  await service.close();
  rmSync(home, { recursive: true, force: true });
});

async function textsOf(job: Job): Promise<{ stdout: string; stderr: string }> {
  const texts = { stdout: "", stderr: "" };
  for await (const { stream, data } of job) texts[stream] += Buffer.from(data).toString("latin1");
  return texts;
}

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

test("a command that the VM does not have fails with its kind", async () => {
  const job = vm.stream({ argv: ["no-such-command"] });
  await expect(textsOf(job)).rejects.toMatchObject({ kind: "command_not_found" });
  await expect(job).rejects.toMatchObject({ kind: "command_not_found" });
});

test("a start over the limit of a frame opens no stream and leaves no rejection behind", () => {
  const before = service.seen.length;
  const env = { A: "x".repeat(300_000) };
  expect(() => client.vm("vm_aaaaaaaaaaaaaaaa").stream({ command: "true", env })).toThrow(/limit 262144/);
  expect(service.seen.slice(before)).toEqual([]);
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
  for (const socket of service.connections) socket.destroy();
  await expect(job).rejects.toMatchObject({ kind: "unavailable", outcome: "unknown" });
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
  for await (const { data } of vm.jobOutput(await job.id, { offset: 1, follow: true })) bytes += data.length;
  expect(bytes).toBe(4);
});
