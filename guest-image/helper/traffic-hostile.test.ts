import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { encodeHello } from "../../packages/wire/src/lane-hello.ts";
import { skipReason } from "./rig.ts";
import { TrafficRig } from "./testing/traffic-rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: hostile hosts of the relay: ${reason}`);

const HELLO = 1;
const OPEN = 2;
const DATA = 3;
const WINDOW = 4;
const END = 5;
const RESET = 6;
const CREDIT = 262_144;
const SOON = { interval: 5, timeout: 10_000 };
/** The last word of a lane that the host broke: a reset of stream 0 for a fault of protocol. */
const FAULT = "06" + "00000000" + "05";

function frame(
  type: number,
  stream: number,
  payload: Uint8Array = Buffer.alloc(0),
  length = 5 + payload.length,
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUInt32BE(length, 0);
  head[4] = type;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

describe.skipIf(reason !== undefined)("a hostile host of the relay", () => {
  let rig: TrafficRig;
  let generation = 0;
  let port: Socket;
  // One relay for all: it outlives whatever the host does.
  beforeAll(async () => {
    rig = new TrafficRig();
    await rig.start();
    rig.guest.open().write("first");
    port = await rig.ports.next();
  });
  afterAll(async () => {
    await rig.stop();
    rig.remove();
  });

  /** A new lane by hand; what comes on it behind the relay's hello. */
  async function rawLane(): Promise<() => Buffer> {
    generation += 1;
    const marker = randomBytes(32);
    const seen: Buffer[] = [];
    port.removeAllListeners("data");
    port.on("data", (chunk: Buffer) => seen.push(chunk));
    rig.order(`lane ${generation} ${marker.toString("hex")}`);
    expect(await rig.lines.next()).toBe(`ok ${generation}`);
    const all = () => Buffer.concat(seen);
    await expect.poll(() => all().includes(marker), SOON).toBe(true);
    port.write(encodeHello(marker, { lane_generation: generation }));
    return () => all().subarray(all().indexOf(marker) + 32 + 31);
  }

  /** A client of a new lane, with the id of its stream: others that waited are on that lane too. */
  async function started(reads = true) {
    const seen = await rawLane();
    const client = rig.guest.open(undefined, false);
    if (!reads) client.pause();
    const word = `client ${generation}.`;
    client.write(word);
    await expect.poll(() => seen().toString("latin1"), SOON).toContain(word);
    return { client, seen, id: seen().readUInt32BE(seen().indexOf(word) - 4) };
  }

  async function isStillGood(): Promise<void> {
    const { client, id } = await started();
    port.write(frame(DATA, id, Buffer.from("yes")));
    expect((await client.got(3)).toString()).toBe("yes");
    expect(rig.relay.exitCode).toBe(null);
  }

  const faults: readonly (readonly [string, (own: number) => Buffer])[] = [
    ["a length of 0", () => Buffer.alloc(9)],
    ["a length of 4", (own) => frame(END, own, undefined, 4)],
    ["a length of 65,537", (own) => frame(DATA, own, Buffer.alloc(10), 65_537)],
    ["a length of 4 GiB", (own) => frame(DATA, own, Buffer.alloc(10), 0xffff_ffff)],
    ["an unknown type", (own) => frame(7, own, Buffer.from("x"))],
    ["type 0", (own) => frame(0, own, Buffer.from("x"))],
    ["a hello within a lane", () => frame(HELLO, 0, Buffer.from("x"))],
    ["data on stream 0", () => frame(DATA, 0, Buffer.from("x"))],
    ["data of no bytes", (own) => frame(DATA, own)],
    ["data on a stream that was never opened", (own) => frame(DATA, own + 98, Buffer.from("x"))],
    ["data on a stream of its own that was never opened", () => frame(DATA, 2, Buffer.from("x"))],
    ["an open of our stream", (own) => frame(OPEN, own + 2, Buffer.from([0x13, 0x8a]))],
    ["an open without a port", () => frame(OPEN, 2, Buffer.from([0x13]))],
    [
      "an open twice",
      () => Buffer.concat([frame(OPEN, 2, Buffer.from([1, 1])), frame(OPEN, 2, Buffer.from([1, 1]))]),
    ],
    ["an open with a tag of 65 bytes", () => frame(OPEN, 2, Buffer.alloc(67, 0x61))],
    ["a window of 3 bytes", (own) => frame(WINDOW, own, Buffer.alloc(3))],
    ["a window of nothing", (own) => frame(WINDOW, own, u32(0))],
    ["a window over the ceiling", (own) => frame(WINDOW, own, u32(CREDIT + 1))],
    ["a window of 4 GiB", (own) => frame(WINDOW, own, u32(0xffff_ffff))],
    ["an end with a payload", (own) => frame(END, own, Buffer.from("x"))],
    ["a reset without a code", (own) => frame(RESET, own)],
    ["a reset with an unknown code", (own) => frame(RESET, own, Buffer.from([8]))],
    ["a reset with 129 bytes of words", (own) => frame(RESET, own, Buffer.alloc(130, 1))],
  ];
  for (const [what, bytes] of faults) {
    test(`${what}: the lane ends, the relay does not, and the next lane runs`, async () => {
      const { seen, id } = await started();
      port.write(bytes(id));
      await expect.poll(() => seen().toString("hex"), SOON).toContain(FAULT);
      await isStillGood();
    });
  }

  test("more data than its credit ends the lane, and no more than that was kept", async () => {
    const { seen, id } = await started(false);
    const before = rig.relayResidentBytes();
    for (let at = 0; at < 200; at++) port.write(frame(DATA, id, Buffer.alloc(60_000)));
    await expect.poll(() => seen().toString("hex"), SOON).toContain(FAULT);
    expect(rig.relayResidentBytes() - before).toBeLessThan(2_000_000);
    await expect.poll(() => port.writableLength, SOON).toBe(0);
    await isStillGood();
  });

  test("data and an end after the end reset that stream alone", async () => {
    const { seen, id } = await started();
    const other = rig.guest.open();
    other.write("other one");
    await expect.poll(() => seen().toString("latin1"), SOON).toContain("other one");
    const otherId = seen().readUInt32BE(seen().indexOf("other one") - 4);
    port.write(Buffer.concat([frame(END, id), frame(DATA, id, Buffer.from("late"))]));
    const reset = `06${u32(id).toString("hex")}05`;
    await expect.poll(() => seen().toString("hex"), SOON).toContain(reset);
    port.write(frame(DATA, otherId, Buffer.from("well")));
    expect((await other.got(4)).toString()).toBe("well");
    expect(seen().toString("hex")).not.toContain(FAULT);
  });

  test("streams that the host opens are refused, and who opens them without end loses the lane", async () => {
    const { seen } = await started();
    port.write(
      Buffer.concat([frame(OPEN, 2, Buffer.from([0x13, 0x8a])), frame(DATA, 2, Buffer.from("late"))]),
    );
    await expect.poll(() => seen().toString("hex"), SOON).toContain("060000000203");
    const many = Array.from({ length: 20_000 }, (_, at) => frame(OPEN, 4 + 2 * at, Buffer.from([1, 1])));
    port.write(Buffer.concat(many));
    await expect.poll(() => seen().toString("hex"), SOON).toContain(FAULT);
    await isStillGood();
  });

  test("a reset of the lane itself ends it without an answer", async () => {
    const { client, seen } = await started();
    port.write(frame(RESET, 0, Buffer.from([1])));
    await client.closed.promise;
    expect(seen().toString("hex")).not.toContain(FAULT);
    await isStillGood();
  });

  test("a flood before its hello is not looked through for ever", async () => {
    generation += 1;
    const marker = randomBytes(32);
    rig.order(`lane ${generation} ${marker.toString("hex")}`);
    expect(await rig.lines.next()).toBe(`ok ${generation}`);
    for (let at = 0; at < 40; at++) {
      if (!port.write(randomBytes(65_536))) await once(port, "drain");
    }
    const seen: Buffer[] = [];
    port.on("data", (chunk: Buffer) => seen.push(chunk));
    rig.guest.open().write("too late");
    port.write(encodeHello(marker, { lane_generation: generation }));
    await expect.poll(() => port.writableLength, SOON).toBe(0);
    expect(Buffer.concat(seen).includes("too late")).toBe(false);
    await isStillGood();
  });

  const seed = Number(process.env.FUZZ_SEED ?? randomInt(2 ** 31));
  test(`mutated frames end lanes and never the relay (seed ${seed})`, { timeout: 60_000 }, async () => {
    const below = numbers(seed);
    for (let round = 0; round < 60; round++) {
      const frames = Array.from({ length: 1 + below(20) }, () => {
        const type = OPEN + below(5);
        const payload =
          type === WINDOW
            ? u32(1 + below(1_000))
            : Buffer.alloc(below(8) === 0 ? 3_000 : below(8), below(256));
        return frame(type, below(5), payload);
      });
      const bytes = Buffer.concat(frames);
      for (let hits = below(3); hits > 0; hits--) bytes[below(bytes.length)] = below(256);
      await rawLane();
      rig.guest.open(undefined, false).write("more");
      // In two pieces, torn anywhere.
      const cut = below(bytes.length);
      port.write(bytes.subarray(0, cut));
      await new Promise((resolve) => setImmediate(resolve));
      port.write(bytes.subarray(cut));
      expect(rig.relay.exitCode, `seed ${seed} round ${round}`).toBe(null);
    }
    await isStillGood();
  });
});

/** mulberry32: small, seeded. */
function numbers(start: number): (below: number) => number {
  let state = start;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}
