/** Seeded fuzzers of the multiplexer and of the decoders. Each throws with what it found. */
import { assert, Failure } from "@capsem/base";
import { decodeGuestMessage, encodeGuestMessage } from "./control-codec.ts";
import { encodeFrame } from "./frame.ts";
import { JobChunkDecoder } from "./job-chunks.ts";
import { WIRE_LIMITS } from "./limits.ts";
import { createMemoryLink } from "./memory-link.ts";
import { decodeMessagePack, encodeMessagePack } from "./msgpack.ts";
import { createMux } from "./mux.ts";
import type { Mux, MuxStream, Transport } from "./types.ts";

/** mulberry32: a small generator whose whole state is its seed. */
export function randomOf(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

type Random = ReturnType<typeof randomOf>;

/** Runs every fuzzer; `rounds` scales them all. */
export async function fuzz(seed: number, rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    await fuzzPair(randomOf(seed + round * 3));
    fuzzGarbage(randomOf(seed + round * 3 + 1));
    fuzzDecoders(randomOf(seed + round * 3 + 2));
  }
}

/** One direction of one stream: what was written and what was read, both as a position in one sequence. */
interface Flow {
  sentBytes: number;
  readBytes: number;
  isEnded: boolean;
  isReset: boolean;
}

/** Random operations of two muxes over a link of random cuts: every byte arrives in order, and nothing stays. */
async function fuzzPair(random: Random): Promise<void> {
  const flows = new Map<string, Flow>();
  const work: Promise<void>[] = [];
  const splitAt = 1 + random(40_000);
  const { a, b } = createMemoryLink({
    highWaterBytes: 1 + random(100_000),
    split: (chunk) => split(chunk, 1 + random(splitAt)),
  });
  const live: { stream: MuxStream; out: Flow }[] = [];
  const adopt = (side: string, stream: MuxStream) => {
    const out = flowOf(flows, `${side} ${stream.id}`);
    const back = flowOf(flows, `${side === "host" ? "guest" : "host"} ${stream.id}`);
    live.push({ stream, out });
    work.push(readFlow(stream, back, random));
  };
  const host = createMux({ role: "host", transport: a, onOpen: (stream) => adopt("host", stream) });
  const guest = createMux({ role: "guest", transport: b, onOpen: (stream) => adopt("guest", stream) });
  a.onChunk((chunk) => host.receive(chunk));
  b.onChunk((chunk) => guest.receive(chunk));

  for (let step = 0; step < 120; step += 1) {
    const item = live[random(live.length + 1)];
    const action = random(12);
    if (item === undefined || action === 0) {
      const isHost = random(2) === 0;
      if (live.length < 40)
        adopt(isHost ? "host" : "guest", (isHost ? host : guest).open(1 + random(9), `t${step}`));
    } else if (action === 1) finish(item, random(4) === 0);
    else if (!item.out.isEnded && !item.out.isReset)
      work.push(writeFlow(item.stream, item.out, sizeOf(random)));
    if (random(3) === 0) await turn();
  }
  for (const item of live) finish(item, false);
  // Streams that were opened last reach the other side late.
  for (let count = 0; count < 20; count += 1) {
    await turn();
    for (const item of live) finish(item, false);
  }
  await Promise.all(work);
  await Promise.all(live.map(({ stream }) => stream.closed));
  for (const [name, flow] of flows) {
    if (flow.isReset) continue;
    assert(flow.readBytes === flow.sentBytes, `${name}: ${flow.sentBytes} sent, ${flow.readBytes} read`);
  }
  assert(host.streamCount === 0 && guest.streamCount === 0, "a stream stayed");
  await checkAlive(host, guest);
}

function finish(item: { stream: MuxStream; out: Flow }, isReset: boolean): void {
  if (isReset) {
    item.out.isReset = true;
    item.stream.reset("cancelled");
  } else {
    item.out.isEnded = true;
    item.stream.end();
  }
}

async function writeFlow(stream: MuxStream, flow: Flow, size: number): Promise<void> {
  const from = flow.sentBytes;
  flow.sentBytes += size;
  try {
    await stream.write(new Uint8Array(size).map((_, at) => byteAt(from + at)));
  } catch (thrown) {
    noteReset(flow, thrown);
  }
}

async function readFlow(stream: MuxStream, flow: Flow, random: Random): Promise<void> {
  try {
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
      assert(chunk.length > 0, "an empty chunk was read");
      const wrong = chunk.findIndex((byte, at) => byte !== byteAt(flow.readBytes + at));
      assert(wrong < 0, `byte ${flow.readBytes + wrong} of stream ${stream.id} is wrong`);
      flow.readBytes += chunk.length;
      if (random(4) === 0) await turn();
    }
  } catch (thrown) {
    noteReset(flow, thrown);
  }
}

function noteReset(flow: Flow, thrown: unknown): void {
  if (!(thrown instanceof Failure) || thrown.kind !== "reset") throw thrown;
  flow.isReset = true;
}

async function checkAlive(...muxes: Mux[]): Promise<void> {
  for (const mux of muxes) {
    const end = await Promise.race([mux.ended, Promise.resolve(undefined)]);
    assert(end === undefined, `a mux ended: ${end?.message}`);
  }
}

/** Frames that are almost right, and noise: `receive` never throws and what is kept stays bounded. */
function fuzzGarbage(random: Random): void {
  let written = 0;
  const transport: Transport = {
    write(chunk) {
      written += chunk.length;
      return random(2) === 0;
    },
    onDrain: () => undefined,
    close: () => undefined,
  };
  const streams: MuxStream[] = [];
  const onOpen = (stream: MuxStream) => {
    streams.push(stream);
    if (random(5) === 0) throw new Failure("refused", "Cannot open");
    if (random(5) === 0) stream.reset("internal");
    if (random(5) === 0) stream.end();
  };
  const mux = createMux({ role: "host", transport, onOpen });
  for (let step = 0; step < 400; step += 1) {
    const bytes = random(60) === 0 ? noise(random, random(200)) : almostFrame(random, streams.length);
    for (const part of split(bytes, 1 + random(300))) mux.receive(part);
    assert(mux.streamCount <= WIRE_LIMITS.streamsMax, "too many streams are kept");
  }
  assert(written < 400 * 256, "the mux wrote more than it was asked");
  mux.close();
}

/** Mostly what an honest peer could send, with a wrong field now and then. */
function almostFrame(random: Random, known: number): Uint8Array {
  const isWrong = random(200) === 0;
  const id = isWrong ? random(5) : 1 + 2 * random(known + 2);
  const type = isWrong ? random(256) : 2 + random(5);
  if (type === 2) return encodeFrame(2, 1 + 2 * known, Uint8Array.of(0x13, 0x88, ...noiseText(random)));
  const sizes: Record<number, number> = { 3: 1 + random(5_000), 4: 4, 5: 0, 6: 1 };
  const payload = new Uint8Array(sizes[type] ?? random(9));
  if (type === 6) payload[0] = 1 + random(7);
  if (type === 4) payload[3] = 1;
  return encodeFrame(type, type === 6 && id === 1 ? 3 : id, payload);
}

/** Decoders throw Failures alone, and what was encoded comes back. */
function fuzzDecoders(random: Random): void {
  for (let step = 0; step < 200; step += 1) {
    const bytes = noise(random, random(64));
    expectFailure(() => decodeMessagePack(bytes));
    expectFailure(() => decodeGuestMessage(bytes));
    expectFailure(() => new JobChunkDecoder(["stdout", "stderr"]).push(bytes));
    const good = encodeGuestMessage({ name: "pong", body: { sequence: random(1_000_000), clock_ms: 1.5 } });
    good[random(good.length)] = random(256);
    expectFailure(() => decodeGuestMessage(good));
    const value = randomValue(random, 4);
    const again = encodeMessagePack(decodeMessagePack(encodeMessagePack(value)));
    assert(sameBytes(again, encodeMessagePack(value)), `a value changed: ${JSON.stringify(value)}`);
  }
}

function expectFailure(work: () => unknown): void {
  try {
    work();
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
  }
}

function randomValue(random: Random, depth: number): unknown {
  switch (random(depth > 0 ? 9 : 6)) {
    case 0:
      return null;
    case 1:
      return random(2) === 0;
    case 2:
      return (random(2) === 0 ? -1 : 1) * random(2 ** 31) * (1 + random(2 ** 21));
    case 3:
      return random(1_000_000) / 7;
    case 4:
      return "x".repeat(random(300));
    case 5:
      return noise(random, random(300));
    case 6:
      return Array.from({ length: random(20) }, () => randomValue(random, depth - 1));
    default:
      return Object.fromEntries(
        Array.from({ length: random(20) }, (_, at) => [`k${at}`, randomValue(random, depth - 1)]),
      );
  }
}

function flowOf(flows: Map<string, Flow>, name: string): Flow {
  const flow = flows.get(name) ?? { sentBytes: 0, readBytes: 0, isEnded: false, isReset: false };
  flows.set(name, flow);
  return flow;
}

function sizeOf(random: Random): number {
  return [random(10), random(500), random(5_000), random(70_000), 262_144][random(5)] ?? 0;
}

function split(chunk: Uint8Array, size: number): Uint8Array[] {
  const parts: Uint8Array[] = [];
  for (let at = 0; at < chunk.length; at += size) parts.push(chunk.subarray(at, at + size));
  return parts;
}

function noise(random: Random, size: number): Uint8Array {
  return new Uint8Array(size).map(() => random(256));
}

function noiseText(random: Random): number[] {
  return Array.from({ length: random(20) }, () => 0x61 + random(26));
}

function byteAt(position: number): number {
  return (position * 31 + (position >>> 8)) & 255;
}

function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}

async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}
