import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex, Readable } from "node:stream";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { putHelper } from "./testing/compiled.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

/** PROTOCOL.md, section 4, spoken by hand. */
const FRAMES = 1;
const SEND = 2;
const GRANT = 3;
const STOP = 4;
const DATA = 3;
const WINDOW = 4;
const CREDIT = 262_144;
const STREAM = 6;
const ECANCELED = 125;
const EPROTO = 71;
const NO_BOUNDARY = Number.MAX_SAFE_INTEGER;

let dir = "";
let server: Server;
let host: Socket;
let relay: ChildProcess;
let control: Duplex;
const open: number[] = [];
/** What each side was given so far. */
const given = { host: Buffer.alloc(0), agent: Buffer.alloc(0), reports: Buffer.alloc(0) };

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "capsem-relay-"));
  putHelper(join(dir, "helper"));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

beforeEach(async () => {
  for (const side of ["host", "agent", "reports"] as const) given[side] = Buffer.alloc(0);
  const path = join(dir, "port");
  rmSync(path, { force: true });
  server = createServer();
  server.listen(path);
  await once(server, "listening");
  relay = spawn(join(dir, "helper"), ["relay", path], { stdio: ["ignore", "pipe", "inherit", "pipe"] });
  control = relay.stdio[3] as Duplex;
  [host] = (await once(server, "connection")) as [Socket];
  const keep = (side: keyof typeof given, source: Readable) =>
    source.on("data", (chunk: Buffer) => {
      given[side] = Buffer.concat([given[side], chunk]);
    });
  keep("host", host);
  keep("agent", relay.stdout as Readable);
  keep("reports", control);
});

afterEach(async () => {
  const ended = once(relay, "exit");
  control.destroy();
  await ended;
  host.destroy();
  server.close();
  for (const fd of open.splice(0)) closeSync(fd);
});

function u32(...values: number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 4);
  for (const [at, value] of values.entries()) bytes.writeUInt32BE(value, at * 4);
  return bytes;
}

const u64 = (value: number): Buffer => u32(Math.floor(value / 2 ** 32), value % 2 ** 32);

function frame(type: number, stream: number, payload: Buffer): Buffer {
  return Buffer.concat([u32(5 + payload.length), Buffer.of(type), u32(stream), payload]);
}

function order(kind: number, ...parts: Buffer[]): void {
  const payload = Buffer.concat(parts);
  control.write(Buffer.concat([Buffer.of(kind), u32(payload.length), payload]));
}

interface Body {
  readonly number?: number;
  readonly stream?: number;
  readonly offset?: number;
  readonly length?: number;
  readonly credit?: number;
  readonly boundary?: number;
}

function send(fd: number, body: Body = {}): void {
  const { number = 1, stream = STREAM, offset = 0, length = 2 ** 40, credit = CREDIT, boundary = 0 } = body;
  order(SEND, u32(number, stream, fd), u64(offset), u64(length), u32(credit), u64(boundary));
}

/** A file of these many bytes, none like its neighbour, open here. */
function fileOf(size: number): { fd: number; path: string; bytes: Buffer } {
  const bytes = Buffer.from(
    Uint32Array.from({ length: Math.ceil(size / 4) }, (_, i) => Math.imul(i + 1, 2_654_435_761)).buffer,
  ).subarray(0, size);
  const path = join(dir, `file${open.length}`);
  writeFileSync(path, bytes);
  const fd = openSync(path, "r");
  open.push(fd);
  return { fd, path, bytes };
}

/** The whole frames that the host has; throws where one is torn. */
function frames(): { type: number; stream: number; payload: Buffer }[] {
  const all = [];
  for (let at = 0; at + 9 <= given.host.length; ) {
    const length = given.host.readUInt32BE(at);
    if (length < 5 || length > 65_536) throw new Error(`a frame of ${length} bytes: one was torn`);
    if (at + 4 + length > given.host.length) break;
    const payload = given.host.subarray(at + 9, at + 4 + length);
    all.push({ type: given.host[at + 4] ?? 0, stream: given.host.readUInt32BE(at + 5), payload });
    at += 4 + length;
  }
  return all;
}

function dataOf(stream = STREAM): Buffer {
  return Buffer.concat(
    frames()
      .filter((each) => each.type === DATA && each.stream === stream)
      .map(({ payload }) => payload),
  );
}

function reports(): { number: number; sent: number; credit: number; errno: number }[] {
  return Array.from({ length: Math.floor(given.reports.length / 20) }, (_, index) => {
    const at = index * 20;
    return {
      number: given.reports.readUInt32BE(at),
      sent: given.reports.readUInt32BE(at + 4) * 2 ** 32 + given.reports.readUInt32BE(at + 8),
      credit: given.reports.readUInt32BE(at + 12),
      errno: given.reports.readUInt32BE(at + 16),
    };
  });
}

test("a window of a file leaves as data frames, and its end is reported with what is left of the credit", async () => {
  const { fd, bytes } = fileOf(200_003);
  send(fd, { offset: 70_001, length: 100_000 });
  await expect
    .poll(reports, SOON)
    .toEqual([{ number: 1, sent: 100_000, credit: CREDIT - 100_000, errno: 0 }]);
  expect(dataOf().equals(bytes.subarray(70_001, 170_001))).toBe(true);
});

test("no more than the credit leaves; a grant of the agent's is more", async () => {
  const { fd, bytes } = fileOf(300_000);
  send(fd, { credit: 1_000, boundary: NO_BOUNDARY });
  await expect.poll(() => dataOf().length, SOON).toBe(1_000);
  order(GRANT, u32(1, 500));
  await expect.poll(() => dataOf().length, SOON).toBe(1_500);
  expect(reports()).toEqual([]);
  order(GRANT, u32(1, 262_144));
  await expect.poll(() => dataOf().length, SOON).toBe(263_644);
  order(GRANT, u32(1, 262_144));
  await expect.poll(() => reports().length, SOON).toBe(1);
  expect(dataOf().equals(bytes)).toBe(true);
});

test.each([1, 7, 9, 12, 13, 14, 1_000])(
  "grants are taken from the port, all else is handed on: pieces of %i bytes",
  async (size) => {
    const { fd, bytes } = fileOf(5_500);
    const before = frame(DATA, 4, Buffer.from("earlier"));
    host.write(before);
    await expect.poll(() => given.agent.length, SOON).toBe(before.length);
    send(fd, { credit: 1_000, boundary: before.length });
    await expect.poll(() => dataOf().length, SOON).toBe(1_000);
    const others = [
      frame(DATA, STREAM, Buffer.from("of the same stream")),
      frame(WINDOW, STREAM + 2, u32(77)),
      frame(5, 8, Buffer.alloc(0)),
      frame(DATA, 10, frame(WINDOW, STREAM, u32(99))),
    ];
    const grant = frame(WINDOW, STREAM, u32(1_000));
    const input = Buffer.concat(others.flatMap((other) => [grant, other]));
    for (let at = 0; at < input.length; at += size) {
      host.write(input.subarray(at, at + size));
      // Another read of the relay: the loop of this process is left once.
      await new Promise((resolve) => setImmediate(resolve));
    }
    await expect.poll(() => dataOf().length, SOON).toBe(5_000);
    await expect
      .poll(() => given.agent.toString("hex"), SOON)
      .toBe(Buffer.concat([before, ...others]).toString("hex"));
    host.write(Buffer.concat([grant, grant.subarray(0, 5)]));
    await expect.poll(() => reports().length, SOON).toBe(1);
    expect(dataOf().equals(bytes)).toBe(true);
    // What was held of a begun frame is the agent's once nothing is sent.
    await expect.poll(() => given.agent.subarray(-5).equals(grant.subarray(0, 5)), SOON).toBe(true);
  },
);

test("bytes that are no frames are handed on unchanged, and a later generation is followed again", async () => {
  const { fd } = fileOf(4_500);
  send(fd, { credit: 1_000 });
  await expect.poll(() => dataOf().length, SOON).toBe(1_000);
  const marker = Buffer.concat([Buffer.alloc(32, 0xab), frame(1, 0, Buffer.from("hello"))]);
  host.write(marker);
  await expect.poll(() => given.agent.equals(marker), SOON).toBe(true);
  order(STOP, u32(1));
  await expect.poll(() => reports().length, SOON).toBe(1);
  send(fd, { number: 2, credit: 2_000, boundary: marker.length });
  await expect.poll(() => dataOf().length, SOON).toBe(3_000);
  host.write(frame(WINDOW, STREAM, u32(3_000)));
  await expect.poll(() => reports()[1], SOON).toEqual({ number: 2, sent: 4_500, credit: 500, errno: 0 });
  expect(given.agent.equals(marker)).toBe(true);
});

test("the agent's frames go between those of files, none is torn, and the order of each is kept", async () => {
  const first = fileOf(4_000_000);
  const second = fileOf(3_000_000);
  send(first.fd);
  send(second.fd, { number: 2, stream: STREAM + 2 });
  const granted = new Map([STREAM, STREAM + 2].map((stream) => [stream, 0]));
  for (let round = 0; reports().length < 2; round++) {
    const own = [0, 1].map((part) => frame(DATA, 20, Buffer.alloc(20_000, round * 2 + part)));
    if (round < 100) order(FRAMES, ...own);
    for (const [stream, bytes] of granted) {
      const owed = dataOf(stream).length - bytes;
      if (owed < CREDIT / 2) continue;
      host.write(frame(WINDOW, stream, u32(owed)));
      granted.set(stream, bytes + owed);
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
    if (round > 2_000) throw new Error(`it does not end: ${JSON.stringify(reports())}`);
  }
  expect(dataOf().equals(first.bytes)).toBe(true);
  expect(dataOf(STREAM + 2).equals(second.bytes)).toBe(true);
  const marks = frames().filter(({ stream }) => stream === 20);
  expect(marks.map(({ payload }) => payload[0])).toEqual(marks.map((_, index) => index & 255));
});

test("a port that takes nothing holds the relay up, and nothing is lost when it takes again", async () => {
  const { fd, bytes } = fileOf(200_000);
  host.pause();
  const own = frame(DATA, 20, Buffer.alloc(60_000, 7));
  for (let count = 0; count < 20; count++) order(FRAMES, own);
  send(fd);
  host.resume();
  await expect.poll(() => reports().length, SOON).toBe(1);
  await expect.poll(() => dataOf(20).length, SOON).toBe(1_200_000);
  expect(dataOf().equals(bytes)).toBe(true);
});

test("a stopped body says what it sent, and sends no more", async () => {
  const { fd } = fileOf(500_000);
  send(fd, { credit: 1_000 });
  await expect.poll(() => dataOf().length, SOON).toBe(1_000);
  order(STOP, u32(1));
  order(GRANT, u32(1, 1_000));
  await expect.poll(reports, SOON).toEqual([{ number: 1, sent: 1_000, credit: 0, errno: ECANCELED }]);
  expect(dataOf().length).toBe(1_000);
});

test("a file that shrinks meanwhile ends where it ends now", async () => {
  const { fd, path } = fileOf(500_000);
  send(fd, { credit: 1_000 });
  await expect.poll(() => dataOf().length, SOON).toBe(1_000);
  truncateSync(path, 1_200);
  order(GRANT, u32(1, 5_000));
  await expect.poll(reports, SOON).toEqual([{ number: 1, sent: 1_200, credit: 4_800, errno: 0 }]);
});

test("a credit above the ceiling, a closed descriptor and a directory are reported and send nothing", async () => {
  const { fd } = fileOf(10_000);
  const folder = openSync(dir, "r");
  open.push(folder);
  send(fd, { credit: CREDIT + 1 });
  send(999_999, { number: 2 });
  send(folder, { number: 3 });
  send(fd, { number: 4, length: 0 });
  await expect.poll(() => reports().map(({ errno }) => errno), SOON).toEqual([EPROTO, 2, 22, 0]);
  expect(given.host.length).toBe(0);
});

test.each([
  ["an unknown kind", Buffer.from([9, 0, 0, 0, 0])],
  ["a send of another size", Buffer.from([2, 0, 0, 0, 1, 0])],
  ["a grant without its bytes", Buffer.from([3, 0, 0, 0, 4, 0, 0, 0, 1])],
])("an order that is none ends the relay: %s", async (_, bytes) => {
  const ended = once(relay, "exit");
  control.write(bytes);
  expect(await ended).toEqual([1, null]);
  // Started again, so that what follows each test has something to end.
  relay = spawn("sleep", ["60"], { stdio: ["ignore", "ignore", "inherit", "pipe"] });
  control = relay.stdio[3] as Duplex;
  relay.kill("SIGKILL");
});
