import { Failure, ignore } from "@capsem/base";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { encodeFrame, FRAME_TYPES } from "./frame.ts";
import { createGuestControlLane, createGuestDataLane, type GuestDataLane } from "./guest-lane.ts";
import {
  createHostControlLane,
  createHostDataLane,
  type HostControlLane,
  type HostDataLane,
  startHostLanes,
} from "./host-lane.ts";
import type { Lane } from "./lane.ts";
import { CONTROL_MAGIC, encodeHello, type WireIdentity } from "./lane-hello.ts";
import { createMemoryLink, type LinkEnd, type LinkOptions } from "./memory-link.ts";
import type { Mux, MuxStream } from "./types.ts";

const IDENTITY: WireIdentity = { wire: 1, table: "0123456789abcdef0123456789abcdef" };
const AGENT = "00112233445566ff";

interface Host {
  readonly control: HostControlLane;
  readonly bulk: HostDataLane;
  readonly opened: MuxStream[];
}
interface Guest {
  readonly control: Lane;
  readonly bulk: GuestDataLane;
  readonly muxes: Mux[];
  readonly bulkMuxes: Mux[];
  readonly opened: MuxStream[];
  readonly failures: Failure[];
}
interface Link {
  readonly a: LinkEnd;
  readonly b: LinkEnd;
}

function linksOf(options: LinkOptions = {}): { control: Link; bulk: Link } {
  return { control: createMemoryLink(options), bulk: createMemoryLink(options) };
}

function hostOn(links: { control: Link; bulk: Link }, identity = IDENTITY): Host {
  const opened: MuxStream[] = [];
  const onOpen = (stream: MuxStream) => void opened.push(stream);
  const control = createHostControlLane({ transport: links.control.a, identity, onOpen });
  const bulk = createHostDataLane({ transport: links.bulk.a, onOpen });
  links.control.a.onChunk((chunk) => control.receive(chunk));
  links.bulk.a.onChunk((chunk) => bulk.receive(chunk));
  return { control, bulk, opened };
}

function guestOn(links: { control: Link; bulk: Link }, identity = IDENTITY, agentInstance = AGENT): Guest {
  const [muxes, bulkMuxes, opened, failures] = [[], [], [], []] as [Mux[], Mux[], MuxStream[], Failure[]];
  const onOpen = (stream: MuxStream) => void opened.push(stream);
  const onFailure = (failure: Failure) => void failures.push(failure);
  const bulk = createGuestDataLane({
    transport: links.bulk.b,
    onOpen,
    onFailure,
    onGeneration: (mux) => bulkMuxes.push(mux),
  });
  const control = createGuestControlLane({
    transport: links.control.b,
    identity,
    agentInstance,
    onOpen,
    onFailure,
    onGeneration: (mux, hello) => {
      muxes.push(mux);
      bulk.expect(hello.bulk_marker, hello.lane_generation);
    },
  });
  links.control.b.onChunk((chunk) => control.receive(chunk));
  links.bulk.b.onChunk((chunk) => bulk.receive(chunk));
  return { control, bulk, muxes, bulkMuxes, opened, failures };
}

function startOf(generation: number) {
  const markers = { bulk: new Uint8Array(32).fill(generation), traffic: new Uint8Array(32).fill(200) };
  return { generation, markers };
}

async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

async function kindOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return "none";
  } catch (thrown) {
    return thrown instanceof Failure ? thrown.kind : "not a failure";
  }
}

async function checkBothWays(host: Host, guest: Guest): Promise<void> {
  const stream = guest.muxes.at(-1)?.open(5000, "");
  await stream?.write(Uint8Array.of(1, 2, 3));
  const job = host.bulk.mux?.open(5005, "job");
  await job?.write(Uint8Array.of(4));
  await turn();
  expect(await host.opened.at(-1)?.read()).toEqual(Uint8Array.of(1, 2, 3));
  expect(await guest.opened.at(-1)?.read()).toEqual(Uint8Array.of(4));
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
});
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

const SPLITS: [string, LinkOptions][] = [
  ["whole", {}],
  ["in single bytes", { split: (chunk) => Array.from(chunk, (_, at) => chunk.subarray(at, at + 1)) }],
  ["in Buffers", { split: (chunk) => [Buffer.from(chunk)] }],
];
for (const [name, options] of SPLITS) {
  test(`lanes start three generations when bytes arrive ${name}`, async () => {
    const links = linksOf(options);
    const [host, guest] = [hostOn(links), guestOn(links)];
    for (const generation of [1, 2, 3]) {
      const { control, bulk } = await startHostLanes(host, startOf(generation));
      expect(control.hello).toEqual({ ...IDENTITY, lane_generation: generation, agent_instance: AGENT });
      expect(bulk.hello).toEqual({ lane_generation: generation });
      await checkBothWays(host, guest);
    }
    for (const mux of [...guest.muxes.slice(0, 2), ...guest.bulkMuxes.slice(0, 2)]) {
      expect(await mux.ended).toMatchObject({ kind: "lost" });
      expect(mux.streamCount).toBe(0);
    }
    expect(guest.failures).toEqual([]);
  });
}

test("stale bytes of an older generation are discarded on both sides", async () => {
  const links = linksOf();
  const [host, guest] = [hostOn(links), guestOn(links)];
  await startHostLanes(host, startOf(1));
  const stale = encodeFrame(FRAME_TYPES.data, 1, new Uint8Array(60_000).fill(3));
  // Half a frame waits in the guest's bulk parser, as after a restore.
  guest.bulk.receive(stale.subarray(0, 30_000));
  links.bulk.b.write(stale.subarray(100));
  links.control.b.write(stale.subarray(100));
  await startHostLanes(host, startOf(2));
  await checkBothWays(host, guest);
});

test("a stale hello of an older generation is skipped", async () => {
  const links = linksOf();
  const host = hostOn(links);
  const started = host.control.start(startOf(2));
  const hello = (generation: number) =>
    encodeHello(CONTROL_MAGIC, { ...IDENTITY, lane_generation: generation, agent_instance: AGENT });
  links.control.b.write(hello(1));
  links.control.b.write(Uint8Array.of(0, 0, 0, 9, 3, 0));
  links.control.b.write(hello(2));
  expect((await started).hello.lane_generation).toBe(2);
});

test("an agent that was started anew is reached by the next start", async () => {
  const links = linksOf();
  const host = hostOn(links);
  guestOn(links);
  await startHostLanes(host, startOf(1));
  const second = guestOn(links, IDENTITY, "ffffffffffffffff");
  const { control } = await startHostLanes(host, startOf(2));
  expect(control.hello.agent_instance).toBe("ffffffffffffffff");
  await checkBothWays(host, second);
});

test("a violation ends the generation and the next start works", async () => {
  const links = linksOf();
  const [host, guest] = [hostOn(links), guestOn(links)];
  await startHostLanes(host, startOf(1));
  const hostMux = host.control.mux;
  links.control.b.write(new Uint8Array(16));
  links.bulk.a.write(new Uint8Array(16));
  await turn();
  expect(await hostMux?.ended).toMatchObject({ kind: "violation" });
  expect(await guest.muxes[0]?.ended).toMatchObject({ kind: "lost", message: /protocol_error/ });
  expect(await guest.bulkMuxes[0]?.ended).toMatchObject({ kind: "violation" });
  expect([host.control.mux, guest.control.mux, guest.bulk.mux]).toEqual([undefined, undefined, undefined]);
  await startHostLanes(host, startOf(2));
  await checkBothWays(host, guest);
});

test("a host start without an answer ends at its deadline", async () => {
  const links = linksOf();
  const host = hostOn(links);
  const results = Promise.all([
    kindOf(host.control.start(startOf(1))),
    kindOf(host.bulk.start(startOf(1).markers.bulk, 1)),
  ]);
  vi.advanceTimersByTime(10_000);
  expect(await results).toEqual(["lane_timeout", "lane_timeout"]);
  guestOn(links);
  await startHostLanes(host, startOf(2));
});

test("a later start ends an earlier one", async () => {
  const links = linksOf();
  const host = hostOn(links);
  const first = kindOf(host.control.start(startOf(1)));
  const second = host.control.start(startOf(2));
  expect(await first).toBe("lane_lost");
  guestOn(links);
  ignore(second);
  expect((await host.control.start(startOf(3))).hello.lane_generation).toBe(3);
});

const OTHERS: [string, WireIdentity][] = [
  ["another message table", { wire: 1, table: "f".repeat(32) }],
  ["another wire generation", { wire: 2, table: IDENTITY.table }],
];
for (const [name, other] of OTHERS) {
  test(`${name} is a mismatch that both sides name`, async () => {
    const links = linksOf();
    const host = hostOn(links);
    const guest = guestOn(links, other);
    const failed = host.control.start(startOf(1));
    await expect(failed).rejects.toMatchObject({ kind: "protocol_mismatch" });
    await expect(failed).rejects.toThrow(
      new RegExp(`${IDENTITY.table}.*wire ${other.wire} table ${other.table}`),
    );
    expect(guest.failures.map((failure) => failure.kind)).toEqual(["protocol_mismatch"]);
    expect(guest.muxes).toEqual([]);
  });
}

test("more stale bytes than the limit end a host's start", async () => {
  const links = linksOf();
  const host = hostOn(links);
  const started = kindOf(host.control.start(startOf(1)));
  const bulk = kindOf(host.bulk.start(startOf(1).markers.bulk, 1));
  for (let count = 0; count < 17; count += 1) {
    host.control.receive(new Uint8Array(65_536));
    host.bulk.receive(new Uint8Array(65_536));
  }
  expect(await Promise.all([started, bulk])).toEqual(["lane_lost", "lane_lost"]);
});

test("a guest's control lane outlives a flood of stale bytes", async () => {
  const links = linksOf();
  const [host, guest] = [hostOn(links), guestOn(links)];
  for (let count = 0; count < 17; count += 1) guest.control.receive(new Uint8Array(65_536));
  expect(guest.failures.map((failure) => failure.kind)).toEqual(["lane_lost"]);
  await startHostLanes(host, startOf(1));
  await checkBothWays(host, guest);
});

const BAD_HELLOS: [string, object][] = [
  ["without an agent instance", { ...IDENTITY, lane_generation: 1 }],
  ["with a short agent instance", { ...IDENTITY, lane_generation: 1, agent_instance: "00" }],
  ["with one field more", { ...IDENTITY, lane_generation: 1, agent_instance: AGENT, more: 1 }],
  [
    "of the host's shape",
    { ...IDENTITY, lane_generation: 1, bulk_marker: new Uint8Array(32), traffic_marker: new Uint8Array(32) },
  ],
  ["of another generation", { ...IDENTITY, lane_generation: 7, agent_instance: AGENT }],
  ["that is no map", [1]],
];
for (const [name, hello] of BAD_HELLOS) {
  test(`a guest hello ${name} is not an answer`, async () => {
    const links = linksOf();
    const host = hostOn(links);
    const started = host.control.start(startOf(1));
    links.control.b.write(encodeHello(CONTROL_MAGIC, hello as never));
    links.control.b.write(
      encodeHello(CONTROL_MAGIC, { ...IDENTITY, lane_generation: 1, agent_instance: AGENT }),
    );
    expect((await started).hello.agent_instance).toBe(AGENT);
    expect(host.control.mux).toBeDefined();
  });
}

test("a lost transport ends the mux and what waits, for good", async () => {
  const links = linksOf();
  const [host, guest] = [hostOn(links), guestOn(links)];
  await startHostLanes(host, startOf(1));
  const [hostMux, guestMux] = [host.control.mux, guest.control.mux];
  host.control.lost("the socket broke");
  guest.control.lost("the port closed");
  expect(await hostMux?.ended).toEqual({ kind: "lost", message: "the socket broke" });
  expect(await guestMux?.ended).toEqual({ kind: "lost", message: "the port closed" });
  expect(await kindOf(host.control.start(startOf(2)))).toBe("lane_lost");
  const waiting = kindOf(host.bulk.start(startOf(2).markers.bulk, 2));
  host.bulk.close();
  expect(await waiting).toBe("lane_lost");
});

test("an older mux never writes into the newer generation", async () => {
  const links = linksOf();
  const [host, guest] = [hostOn(links), guestOn(links)];
  await startHostLanes(host, startOf(1));
  const old = guest.muxes[0];
  const stream = old?.open(5000, "");
  await startHostLanes(host, startOf(2));
  stream?.reset("cancelled");
  old?.close();
  expect(() => old?.open(5000, "")).toThrow(Failure);
  await checkBothWays(host, guest);
});
