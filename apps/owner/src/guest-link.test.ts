import { randomBytes } from "node:crypto";
import { Duplex } from "node:stream";
import { Failure } from "@capsem/base";
import {
  createGuestControlLane,
  createGuestDataLane,
  type GuestControlPort,
  guestControlPort,
  muxTransport,
  PORTS,
  pump,
  WIRE_IDENTITY,
} from "@capsem/wire";
import { expect, test } from "vitest";
import { GuestLink } from "./guest-link.ts";

/** Two ends of one socket, in memory. */
function pair(): [Duplex, Duplex] {
  const make = (other: () => Duplex) =>
    new Duplex({
      read: () => undefined,
      write: (chunk, _encoding, done) => {
        other().push(chunk);
        done();
      },
      final: (done) => {
        other().push(null);
        done();
      },
    });
  const a: Duplex = make(() => b);
  const b: Duplex = make(() => a);
  return [a, b];
}

interface FakeAgent {
  /** The newest control stream, once the agent has opened one. */
  control: GuestControlPort | undefined;
  /** Lanes that the host started. */
  generations: number;
}

/** A guest agent as far as its lanes go: it answers hellos, says ready, and acknowledges what it is asked. */
function startAgent(
  control: Duplex,
  bulk: Duplex,
  instance: string,
  { readyFrom = 1 }: { readonly readyFrom?: number } = {},
): FakeAgent {
  const agent: FakeAgent = { control: undefined, generations: 0 };
  const data = createGuestDataLane({
    transport: muxTransport(bulk),
    onOpen: (stream) => stream.reset("refused"),
    onGeneration: () => undefined,
    onFailure: () => undefined,
  });
  const lane = createGuestControlLane({
    transport: muxTransport(control),
    identity: WIRE_IDENTITY,
    agentInstance: instance,
    onOpen: (stream) => stream.reset("refused"),
    onFailure: () => undefined,
    onGeneration: (mux, hello) => {
      data.expect(hello.bulk_marker.slice(), hello.lane_generation);
      const port = guestControlPort(mux.open(PORTS.control.number, ""));
      agent.control = port;
      agent.generations += 1;
      if (agent.generations >= readyFrom) void serve(port, instance);
    },
  });
  pump(control, lane);
  pump(bulk, data);
  return agent;
}

async function serve(port: GuestControlPort, instance: string): Promise<void> {
  try {
    await port.send({
      name: "ready",
      body: {
        agent_instance: instance,
        uptime_ms: 1,
        memory_total_bytes: 1,
        cpus: 1,
        clocksource: "tsc",
        mounted: false,
      },
    });
    for await (const message of port.messages()) {
      if (message.name === "thaw") await port.send({ name: "ack", body: { id: message.body.id } });
    }
  } catch {
    // The lane ended, which is what the test is about.
    return;
  }
}

function startLink(control: Duplex, bulk: Duplex) {
  const seen = { lost: [] as Failure[], ends: [] as string[] };
  const logged: string[] = [];
  const link = new GuestLink({
    control,
    bulk,
    random: (bytes) => randomBytes(bytes),
    log: (level, message, fields = {}) => logged.push([level, message, ...Object.keys(fields)].join(" ")),
    helloTimeoutMs: 5_000,
    onMessage: () => undefined,
    onAgentLost: (cause) => seen.lost.push(cause),
    onLaneEnd: (lane) => seen.ends.push(lane),
  });
  return { link, seen, logged };
}

test("a link starts, asks, and starts again with the same agent without losing it", async () => {
  const [hostControl, guestControl] = pair();
  const [hostBulk, guestBulk] = pair();
  startAgent(guestControl, guestBulk, "0123456789abcdef");
  const { link, seen } = startLink(hostControl, hostBulk);
  expect(await link.start()).toMatchObject({ agent_instance: "0123456789abcdef" });
  expect(await link.requests.ask("thaw", {})).toMatchObject({ name: "ack" });
  await link.start();
  expect(await link.requests.ask("thaw", {})).toMatchObject({ name: "ack" });
  expect(seen).toEqual({ lost: [], ends: [] });
});

test("another agent instance on the same lanes means that the first was lost", async () => {
  const [hostControl, guestControl] = pair();
  const [hostBulk, guestBulk] = pair();
  startAgent(guestControl, guestBulk, "0000000000000001");
  const { link, seen } = startLink(hostControl, hostBulk);
  await link.start();
  guestControl.removeAllListeners("data");
  guestBulk.removeAllListeners("data");
  startAgent(guestControl, guestBulk, "0000000000000002");
  await link.start();
  expect(seen.lost.map(({ kind }) => kind)).toEqual(["guest_lost"]);
});

test("a guest that breaks the lane's rules ends the lane, not the process, and a new generation goes on", async () => {
  const [hostControl, guestControl] = pair();
  const [hostBulk, guestBulk] = pair();
  startAgent(guestControl, guestBulk, "0123456789abcdef");
  const { link, seen } = startLink(hostControl, hostBulk);
  await link.start();
  const waiting = link.requests.ask("shutdown", {});
  // A frame of an impossible length.
  hostControl.push(Buffer.from([0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 1]));
  await expect.poll(() => seen.ends).toEqual(["control"]);
  await link.start();
  await expect(waiting).rejects.toMatchObject({ kind: "guest_lost" });
  expect(await link.requests.ask("thaw", {})).toMatchObject({ name: "ack" });
});

test("the hypervisor's end ends what waits, once", async () => {
  const [hostControl, guestControl] = pair();
  const [hostBulk, guestBulk] = pair();
  startAgent(guestControl, guestBulk, "0123456789abcdef");
  const { link, seen } = startLink(hostControl, hostBulk);
  await link.start();
  const waiting = link.requests.ask("shutdown", {});
  link.lose(new Failure("guest_lost", "Cannot go on: the VM ended"));
  await expect(waiting).rejects.toMatchObject({ kind: "guest_lost" });
  await expect(link.requests.ask("thaw", {})).rejects.toMatchObject({ kind: "guest_lost" });
  expect(seen).toEqual({ lost: [], ends: [] });
});

test("the end of the control stream is a warning with its cause, and a plain line where it was asked for", async () => {
  for (const isAsked of [false, true]) {
    const [hostControl, guestControl] = pair();
    const [hostBulk, guestBulk] = pair();
    startAgent(guestControl, guestBulk, "0123456789abcdef");
    const { link, logged } = startLink(hostControl, hostBulk);
    await link.start();
    if (isAsked) link.expectEnd();
    hostControl.push(null);
    const line = isAsked ? "info control stream ended" : "warning control stream ended cause";
    await expect.poll(() => logged).toContain(line);
  }
});

test("a start that a later one overtakes while the agent comes up ends with the later one", async () => {
  const [hostControl, guestControl] = pair();
  const [hostBulk, guestBulk] = pair();
  const agent = startAgent(guestControl, guestBulk, "0123456789abcdef", { readyFrom: 2 });
  const { link, seen } = startLink(hostControl, hostBulk);
  const first = link.start();
  const firstEnd = first.catch((cause: unknown) => cause);
  // Its lanes stand, and the agent is not ready yet.
  await expect.poll(() => agent.generations, { timeout: 5_000 }).toBe(1);
  const second = link.start();
  expect(await second).toMatchObject({ agent_instance: "0123456789abcdef" });
  expect(await firstEnd).toMatchObject({ agent_instance: "0123456789abcdef" });
  expect(await link.requests.ask("thaw", {})).toMatchObject({ name: "ack" });
  expect(seen).toEqual({ lost: [], ends: [] });
});

test("a start that a later one overtakes before its lanes stand ends with the later one", async () => {
  const [hostControl, guestControl] = pair();
  const [hostBulk, guestBulk] = pair();
  startAgent(guestControl, guestBulk, "0123456789abcdef");
  const { link, seen } = startLink(hostControl, hostBulk);
  const both = [link.start(), link.start()];
  expect(await Promise.all(both)).toMatchObject(both.map(() => ({ agent_instance: "0123456789abcdef" })));
  expect(await link.requests.ask("thaw", {})).toMatchObject({ name: "ack" });
  expect(seen).toEqual({ lost: [], ends: [] });
});
