import { Bug, Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { encodeFrame, FRAME_TYPES } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";
import { createMemoryLink, type LinkOptions } from "./memory-link.ts";
import { createMux } from "./mux.ts";
import type { Mux, MuxStream, Transport } from "./types.ts";

interface Pair {
  readonly host: Mux;
  readonly guest: Mux;
  /** Streams that the guest was offered. */
  readonly offered: MuxStream[];
}

function pairOf(options: LinkOptions = {}, onOpen?: (stream: MuxStream) => void): Pair {
  const { a, b } = createMemoryLink(options);
  const offered: MuxStream[] = [];
  const host = createMux({ role: "host", transport: a, onOpen: () => undefined });
  const guest = createMux({
    role: "guest",
    transport: b,
    onOpen: onOpen ?? ((stream) => offered.push(stream)),
  });
  a.onChunk((chunk) => host.receive(chunk));
  b.onChunk((chunk) => guest.receive(chunk));
  a.onClose(() => host.lost("closed"));
  b.onClose(() => guest.lost("closed"));
  return { host, guest, offered };
}

/** A transport that keeps what it is given and says when it takes more. */
function stalled() {
  const written: Uint8Array[] = [];
  let drain: () => void = () => undefined;
  const state = { isWritable: false };
  const transport: Transport = {
    write(chunk) {
      written.push(chunk);
      return state.isWritable;
    },
    onDrain: (listener) => {
      drain = listener;
    },
    close: () => undefined,
  };
  return { transport, written, state, drain: () => drain() };
}

async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

async function offeredBy(pair: Pair, at = 0): Promise<MuxStream> {
  await turn();
  const stream = pair.offered[at];
  if (stream === undefined) throw new Bug(`stream ${at} was not offered`);
  return stream;
}

async function readAll(stream: MuxStream): Promise<number> {
  let bytes = 0;
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) bytes += chunk.length;
  return bytes;
}

async function kindOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return "none";
  } catch (thrown) {
    return thrown instanceof Failure ? `${thrown.kind} ${thrown.detail ?? ""}`.trim() : "not a failure";
  }
}

test("bytes written on one side are read on the other, and nothing stays", async () => {
  const pair = pairOf();
  const stream = pair.host.open(5005, "job_a");
  await stream.write(new Uint8Array(200_000).fill(7));
  stream.end();
  const peer = await offeredBy(pair);
  expect([peer.port, peer.tag, peer.id]).toEqual([5005, "job_a", 2]);
  expect(await readAll(peer)).toBe(200_000);
  expect(await peer.read()).toBe(null);
  peer.end();
  await Promise.all([stream.closed, peer.closed]);
  expect([pair.host.streamCount, pair.guest.streamCount]).toEqual([0, 0]);
});

test("a writer waits when its credit is used up, and goes on when the reader reads", async () => {
  const pair = pairOf();
  const stream = pair.host.open(1, "");
  let isWritten = false;
  const written = stream.write(new Uint8Array(WIRE_LIMITS.streamCreditBytes + 1)).then(() => {
    isWritten = true;
  });
  const peer = await offeredBy(pair);
  await turn();
  expect(isWritten).toBe(false);
  let bytes = 0;
  while (bytes < WIRE_LIMITS.streamCreditBytes / 2) bytes += (await peer.read())?.length ?? 0;
  await written;
  expect(isWritten).toBe(true);
});

test("a stream that nobody reads does not stall another", async () => {
  const pair = pairOf();
  const slow = pair.host.open(1, "slow");
  const blocked = kindOf(slow.write(new Uint8Array(1_000_000)));
  const fast = pair.host.open(1, "fast");
  const written = fast.write(new Uint8Array(3_000_000)).then(() => fast.end());
  const peer = await offeredBy(pair, 1);
  expect(await readAll(peer)).toBe(3_000_000);
  await written;
  slow.reset("cancelled");
  expect(await blocked).toBe("reset cancelled");
});

test("streams take turns of one frame each", async () => {
  const { transport, written, state, drain } = stalled();
  const mux = createMux({ role: "host", transport, onOpen: () => undefined });
  const streams = [1, 2, 3].map((port) => mux.open(port, ""));
  const writes = streams.map((stream) => stream.write(new Uint8Array(100_000)));
  state.isWritable = true;
  drain();
  await Promise.all(writes);
  const order = written
    .filter((chunk) => chunk[4] === FRAME_TYPES.data && chunk.length === 9)
    .map((c) => c[8]);
  expect(order).toEqual([2, 4, 6, 2, 4, 6, 2, 4, 6, 2, 4, 6].slice(0, order.length));
  expect(order.length).toBeGreaterThanOrEqual(9);
});

test("no frame is written while the transport is blocked", async () => {
  const { transport, written, drain } = stalled();
  const mux = createMux({ role: "host", transport, onOpen: () => undefined });
  const stream = mux.open(1, "");
  const write = stream.write(Uint8Array.of(1));
  expect(written.length).toBe(1);
  drain();
  expect(written.length).toBe(2);
  await write;
});

test("opening and resetting while the transport is blocked leaves nothing behind", () => {
  const { transport, written, state, drain } = stalled();
  const mux = createMux({ role: "host", transport, onOpen: () => undefined });
  mux.open(1, "first");
  for (let round = 0; round < 10_000; round += 1) mux.open(1, "later").reset("cancelled");
  expect(mux.streamCount).toBe(1);
  state.isWritable = true;
  drain();
  expect(written.length).toBe(1);
});

test("a peer that opens streams and reads nothing ends the lane", async () => {
  const { transport } = stalled();
  const mux = createMux({
    role: "host",
    transport,
    onOpen: () => {
      throw new Failure("no_such_port", "Cannot open");
    },
  });
  for (let id = 1; id < 10_000; id += 2) {
    mux.receive(encodeFrame(FRAME_TYPES.open, id, Uint8Array.of(0x13, 0x8b)));
  }
  expect((await mux.ended).kind).toBe("violation");
});

test("a refused stream is reset with the reason", async () => {
  const reasons: [unknown, string][] = [
    [new Failure("no_such_port", "Cannot open port 5003: it is closed"), "reset no_such_port"],
    [new Failure("wrong_state", "Cannot open: busy"), "reset refused"],
    [new Bug("broken"), "reset internal"],
  ];
  for (const [thrown, kind] of reasons) {
    const pair = pairOf({}, () => {
      throw thrown;
    });
    const stream = pair.host.open(5003, "");
    expect(await kindOf(stream.read())).toBe(kind);
    await stream.closed;
    expect([pair.host.streamCount, pair.guest.streamCount]).toEqual([0, 0]);
  }
});

test("one stream more than the limit is refused on both sides", async () => {
  const pair = pairOf();
  for (let count = 0; count < WIRE_LIMITS.streamsMax; count += 1) pair.host.open(1, "");
  expect(() => pair.host.open(1, "")).toThrow(Failure);
  await turn();
  expect(pair.guest.streamCount).toBe(WIRE_LIMITS.streamsMax);
  const { transport, written, state } = stalled();
  state.isWritable = true;
  const lone = createMux({ role: "host", transport, onOpen: () => undefined });
  for (let count = 0; count <= WIRE_LIMITS.streamsMax; count += 1) {
    lone.receive(encodeFrame(FRAME_TYPES.open, 1 + 2 * count, Uint8Array.of(0, 1)));
  }
  expect(lone.streamCount).toBe(WIRE_LIMITS.streamsMax);
  expect(written).toEqual([encodeFrame(FRAME_TYPES.reset, 1 + 2 * WIRE_LIMITS.streamsMax, Uint8Array.of(4))]);
});

test("a reset on one side fails reads and writes on the other", async () => {
  const pair = pairOf();
  const stream = pair.host.open(1, "");
  const read = kindOf(readAll(stream));
  const peer = await offeredBy(pair);
  const peerWrite = kindOf(peer.write(new Uint8Array(1_000_000)));
  peer.reset("refused");
  peer.reset("internal");
  expect(await read).toBe("reset refused");
  expect(await kindOf(stream.write(Uint8Array.of(1)))).toBe("reset refused");
  expect(await peerWrite).toBe("reset refused");
  expect(await kindOf(peer.read())).toBe("reset refused");
  expect([pair.host.streamCount, pair.guest.streamCount]).toEqual([0, 0]);
});

test("a half-closed stream still carries the other direction", async () => {
  const pair = pairOf();
  const stream = pair.host.open(1, "");
  stream.end();
  const peer = await offeredBy(pair);
  expect(await peer.read()).toBe(null);
  await peer.write(new Uint8Array(10));
  peer.end();
  expect(await readAll(stream)).toBe(10);
  expect(await kindOf(stream.write(Uint8Array.of(1)))).toBe("not a failure");
});

test("an ended stream counts until what came is read", async () => {
  const pair = pairOf();
  const stream = pair.host.open(1, "");
  await stream.write(new Uint8Array(10));
  stream.end();
  const peer = await offeredBy(pair);
  peer.end();
  await turn();
  expect(pair.guest.streamCount).toBe(1);
  expect(await readAll(peer)).toBe(10);
  await peer.closed;
  expect(pair.guest.streamCount).toBe(0);
});

test("a second reader is a bug of the caller", async () => {
  const pair = pairOf();
  const stream = pair.host.open(1, "");
  const first = kindOf(stream.read());
  await expect(stream.read()).rejects.toThrow(Bug);
  pair.host.close();
  expect(await first).toBe("lane_lost");
});

test("closing ends every stream on both sides", async () => {
  const pair = pairOf();
  const stream = pair.host.open(1, "");
  const peer = await offeredBy(pair);
  const reads = [kindOf(stream.read()), kindOf(peer.read())];
  pair.host.close();
  expect(await Promise.all(reads)).toEqual(["lane_lost", "lane_lost"]);
  expect(await pair.host.ended).toEqual({ kind: "closed", message: "closed here" });
  expect(await pair.guest.ended).toEqual({ kind: "closed", message: "closed by the peer" });
  expect(() => pair.host.open(1, "")).toThrow(Failure);
});

test("a lost transport ends every stream as lost", async () => {
  const pair = pairOf();
  const stream = pair.host.open(1, "");
  const read = kindOf(stream.read());
  pair.host.lost("the socket broke");
  expect(await read).toBe("lane_lost");
  expect(await pair.host.ended).toEqual({ kind: "lost", message: "the socket broke" });
});

test("the peer's words in a lane reset are made printable", async () => {
  const { transport } = stalled();
  const mux = createMux({ role: "host", transport, onOpen: () => undefined });
  mux.receive(encodeFrame(FRAME_TYPES.reset, 0, Uint8Array.of(6, 0x1b, 0x5b, 0x41, 0x0a)));
  expect((await mux.ended).message).toBe("reset by the peer (internal): ?[A?");
});

test("grants are batched", async () => {
  const pair = pairOf();
  const stream = pair.host.open(1, "");
  const peer = await offeredBy(pair);
  let frames = 0;
  const receive = pair.host.receive.bind(pair.host);
  pair.host.receive = (chunk) => {
    frames += 1;
    receive(chunk);
  };
  const written = (async () => {
    for (let count = 0; count < 10_000; count += 1) await stream.write(new Uint8Array(100));
    stream.end();
  })();
  expect(await readAll(peer)).toBe(1_000_000);
  await written;
  expect(frames).toBeLessThanOrEqual(1_000_000 / (WIRE_LIMITS.streamCreditBytes / 2));
});

test("a stream is lent with its credit, grants go to the borrower, and it comes back with what is left", async () => {
  const pair = pairOf();
  const host = pair.host.open(5009, "r1");
  const guest = await offeredBy(pair);
  await guest.write(new Uint8Array(10_000));
  const granted: number[] = [];
  const borrower = { granted: (bytes: number) => granted.push(bytes), revoked: () => granted.push(-1) };
  expect(guest.lend(borrower)).toBe(WIRE_LIMITS.streamCreditBytes - 10_000);
  await expect(guest.write(new Uint8Array(1))).rejects.toThrow(Bug);
  expect(() => guest.lend(borrower)).toThrow(Bug);
  expect(() => guest.end()).toThrow(Bug);
  // What the borrower writes comes by the same transport.
  for (let sent = 0; sent < 4; sent++)
    pair.host.receive(encodeFrame(FRAME_TYPES.data, host.id, new Uint8Array(60_000)));
  const reading = readAll(host);
  await turn();
  expect(granted.reduce((sum, bytes) => sum + bytes, 0)).toBeGreaterThanOrEqual(
    WIRE_LIMITS.streamCreditBytes / 2,
  );
  guest.takeBack(12_144);
  await guest.write(new Uint8Array(2_000));
  guest.end();
  expect(await reading).toBe(252_000);
});

test.each(["reset by the peer", "reset here", "lane lost", "lane closed"])(
  "a loan is revoked at once: %s",
  async (how) => {
    const pair = pairOf();
    const host = pair.host.open(5009, "r1");
    const guest = await offeredBy(pair);
    const revoked: unknown[] = [];
    guest.lend({ granted: () => undefined, revoked: (cause) => revoked.push(cause) });
    if (how === "reset by the peer") host.reset("cancelled");
    else if (how === "reset here") guest.reset("internal");
    else if (how === "lane lost") pair.guest.lost("gone");
    else pair.guest.close();
    if (how !== "reset by the peer") expect(revoked).toHaveLength(1);
    await turn();
    expect(revoked).toEqual([expect.any(Failure)]);
    guest.takeBack(5);
    expect(() => guest.lend({ granted: () => undefined, revoked: () => undefined })).toThrow(Failure);
    expect(revoked).toHaveLength(1);
  },
);

test("a mux knows whether what came ends with a frame", async () => {
  const pair = pairOf();
  const stream = pair.host.open(5009, "r1");
  await offeredBy(pair);
  const frame = encodeFrame(FRAME_TYPES.data, stream.id, new Uint8Array(100));
  const seen: boolean[] = [];
  for (const at of [0, 3, 9, 50]) {
    const next = [0, 3, 9, 50, frame.length].find((end) => end > at);
    pair.guest.receive(frame.subarray(at, next));
    seen.push(pair.guest.isBetweenFrames);
  }
  expect(seen).toEqual([false, false, false, true]);
});
