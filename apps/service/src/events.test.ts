import { createConnection } from "node:net";
import { type ServiceEvent, serviceEvent } from "@capsem/api";
import { expect, test } from "vitest";
import { WebSocket } from "ws";
import { EventQueue } from "./events/event-queue.ts";
import type { FrameSocket } from "./job/frame-socket.ts";
import { EVENT_LIMITS } from "./limits.ts";
import { FakeLedger } from "./testing/fake-ledger.ts";
import type { Rig } from "./testing/rig.ts";
import { createVm, useRigs } from "./testing/use-rigs.ts";

const rigWith = useRigs();

/** A client of capsem.events.v1 that keeps all it gets, each checked by the schema. */
class EventClient {
  readonly events: ServiceEvent[] = [];
  readonly socket: WebSocket;
  readonly closed: Promise<number>;
  readonly status: Promise<number>;

  constructor(rig: Rig, protocols = ["capsem.events.v1"], headers = {}) {
    this.socket = new WebSocket("ws://localhost/events", protocols, {
      headers,
      createConnection: () => createConnection(rig.layout.socket),
    });
    this.socket.on("error", () => undefined);
    this.closed = new Promise((resolve) => this.socket.on("close", resolve));
    this.status = new Promise((resolve) => {
      this.socket.on("unexpected-response", (request, response) => {
        resolve(response.statusCode ?? 0);
        request.destroy();
      });
      this.socket.on("open", () => resolve(101));
    });
    this.socket.on("message", (data: Buffer, isBinary: boolean) => {
      expect(isBinary).toBe(false);
      this.events.push(serviceEvent.parse(JSON.parse(data.toString())));
    });
  }

  async got(count: number): Promise<ServiceEvent[]> {
    await expect.poll(() => this.events.length, { timeout: 30_000 }).toBeGreaterThanOrEqual(count);
    return this.events;
  }
}

test("hello has all VMs, then each change of one is told in order", async () => {
  const rig = await rigWith();
  const first = await createVm(rig, { name: "dev" });
  const client = new EventClient(rig);
  const [hello] = await client.got(1);
  expect(hello).toMatchObject({ type: "hello", vms: [{ id: first, state: "running" }] });
  const second = await createVm(rig);
  await rig.client.post(`/vms/${first}/rename`, { name: "prod" });
  await rig.client.delete(`/vms/${second}/delete`);
  const events = (await client.got(7)).slice(1);
  const told = events.map((event) => {
    if (event.type === "vm") return event.vm.id === second ? event.vm.state : event.vm.name;
    return event.type === "vm_gone" ? [event.vm_id === second, event.last_state, event.reason] : event.type;
  });
  expect(told).toEqual(["creating", "starting", "running", "prod", "deleting", [true, "running", null]]);
  const from = hello?.seq ?? 0;
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, at) => from + 1 + at));
});

test("a VM that dies and one that is idle are told with the reason", async () => {
  const rig = await rigWith({ settings: { "limits.idle_secs": 60 } });
  const lost = await createVm(rig);
  const client = new EventClient(rig);
  await client.got(1);
  rig.killOwners();
  const events = await client.got(2);
  expect(events[1]).toMatchObject({ vm: { id: lost, state: "failed", reason: "owner_lost" } });
  const idle = await createVm(rig);
  rig.advance(61_000);
  await rig.service.sweep.pass();
  const gone = (await client.got(8)).find(({ type }) => type === "vm_gone");
  expect(gone).toMatchObject({ vm_id: idle, last_state: "stopping", reason: "idle" });
});

test("health is told when it changes, both of the owner and back", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const client = new EventClient(rig);
  await client.got(1);
  const { run } = rig.service.registry.get(id);
  if (run === null) throw new Error("no owner");
  run.health.guest = "unresponsive";
  run.onHealth();
  expect((await client.got(2))[1]).toMatchObject({ vm: { id, health: { guest: "unresponsive" } } });
});

test("another subprotocol, a frame of the client's and too many followers are refused", async () => {
  const rig = await rigWith();
  expect(await new EventClient(rig, ["capsem.stream.v1"]).status).toBe(400);
  const talker = new EventClient(rig);
  await talker.got(1);
  talker.socket.send("hello");
  expect(await talker.closed).toBe(1002);
  await expect.poll(() => rig.service.events.subscriberCount).toBe(0);
  const many = Array.from({ length: EVENT_LIMITS.subscribersMax }, () => new EventClient(rig));
  await Promise.all(many.map((client) => client.got(1)));
  expect(await new EventClient(rig).status).toBe(429);
  many[0]?.socket.terminate();
  await expect.poll(() => rig.service.events.subscriberCount).toBe(EVENT_LIMITS.subscribersMax - 1);
  const next = new EventClient(rig);
  await next.got(1);
  await rig.service.close();
  expect(await next.closed).toBe(1001);
});

test("a reader that takes nothing holds up nobody, and the service still ends", async () => {
  const rig = await rigWith();
  const slow = new EventClient(rig);
  await slow.got(1);
  slow.socket.pause();
  for (let count = 0; count < 20; count += 1) await rig.client.delete(`/vms/${await createVm(rig)}/delete`);
  await rig.service.close();
  slow.socket.terminate();
});

/** A socket whose sends wait until they are let through. */
function slowSocket() {
  const sent: string[] = [];
  const waiting: (() => void)[] = [];
  const socket = {
    sendText: (text: string) =>
      new Promise<void>((resolve) => {
        waiting.push(() => {
          sent.push(text);
          resolve();
        });
      }),
  } as unknown as FrameSocket;
  const letOne = async () => {
    await new Promise((resolve) => setImmediate(resolve));
    waiting.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { socket, sent, letOne };
}

test("what a slow reader missed is one lagged message whose numbers close the gap", async () => {
  const { socket, sent, letOne } = slowSocket();
  const queue = new EventQueue();
  queue.push(4, "before the hello");
  queue.start("hello");
  const sending = queue.sendAll(socket);
  const total = EVENT_LIMITS.queuedMax * 3;
  for (let seq = 5; seq < 5 + total; seq += 1) queue.push(seq, `event ${seq}`);
  await letOne();
  await letOne();
  queue.push(5 + total, "after");
  await letOne();
  queue.end();
  await letOne();
  await sending;
  expect(sent).toEqual(["hello", JSON.stringify({ type: "lagged", seq: 4 + total, missed: total }), "after"]);
});

test("large events count by their size", async () => {
  const { socket, sent, letOne } = slowSocket();
  const queue = new EventQueue();
  queue.start("hello");
  const sending = queue.sendAll(socket);
  const large = "x".repeat(EVENT_LIMITS.queuedCharsMax / 2);
  for (let seq = 1; seq <= 3; seq += 1) queue.push(seq, large);
  await letOne();
  await letOne();
  queue.end();
  await sending;
  expect(sent.slice(1)).toEqual([JSON.stringify({ type: "lagged", seq: 3, missed: 3 })]);
});

test.each([
  [
    "whoever follows for its own calls alone does not watch: an ask has the time of one that nobody sees",
    "own",
    0,
    30,
  ],
  ["whoever follows for a person watches", "hold", 1, 300],
] as const)("%s", async (_, asks, watchers, secs) => {
  const ledger = new FakeLedger();
  const rig = await rigWith({ powers: { startLedger: ledger.startLedger } });
  const id = await createVm(rig, { name: "dev" });
  await rig.client.put("/rules/ask", { action: "ask", match: "has(process.command)", priority: 20 });
  const follower = new EventClient(rig, undefined, { "x-capsem-asks": asks });
  await follower.got(1);
  const status = (await rig.client.get("/status")).json<{ asks: { watchers: number } }>();
  expect(status.asks.watchers).toBe(watchers);
  const held = rig.client.post(`/vms/${id}/exec`, { command: "ls" });
  const isAsk = ({ type }: ServiceEvent) => type === "ask";
  await expect.poll(() => follower.events.some(isAsk), { timeout: 30_000 }).toBe(true);
  const told = follower.events.find(isAsk);
  if (told?.type !== "ask") throw new Error("no ask was told");
  const waitMs = Date.parse(told.ask.expires_at) - Date.parse(told.ask.created_at);
  expect(waitMs).toBe(secs * 1000);
  await rig.client.post(`/asks/${told.ask.id}/resolve`, { approve: false });
  expect((await held).status).toBe(403);
  follower.socket.close();
});
