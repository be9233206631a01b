import { type AskInfo, type ServiceEvent, serviceEvent } from "@capsem/api";
import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import type { FrameSocket } from "../job/frame-socket.ts";
import { EventHub } from "./event-hub.ts";

const ASK: AskInfo = {
  ...{ id: "ask_aaaaaaaaaaaaaaaa", state: "pending", vm_id: null, vm_name: null, type: "settings.change" },
  ...{ title: "set a", rule_id: "profiles.rules.a", reason: "", requester: "user uid 1000", client: null },
  ...{ trace_id: null, digest: "d", created_at: "2026-01-01T00:00:00Z", expires_at: "2026-01-01T00:05:00Z" },
  ...{ is_held: true, is_used: false, scope: null, resolver: null, note: null, resolved_at: null },
  scopes: ["once"],
  event_id: "0123456789ab",
};

function hubWith(asks: AskInfo[]): EventHub {
  return new EventHub({ nowMs: () => 0, startedAt: "2026-01-01T00:00:00Z", vms: () => [], asks: () => asks });
}

/** A client that reads at once what it is sent. */
function follower() {
  const events: ServiceEvent[] = [];
  const gone = defer<void>();
  const socket: FrameSocket = {
    next: () => gone.promise.then(() => null),
    send: async () => undefined,
    sendText: async (text) => void events.push(serviceEvent.parse(JSON.parse(text))),
    close: () => gone.resolve(),
    closed: gone.promise,
  };
  return { events, socket, leave: () => gone.resolve() };
}

const soon = () => new Promise((resolve) => setImmediate(resolve));

test("hello has the asks that wait, and each change of one is told at once, in order with the rest", async () => {
  const asks = [ASK];
  const hub = hubWith(asks);
  const client = follower();
  const following = hub.follow(async () => client.socket);
  await soon();
  expect(client.events).toMatchObject([{ type: "hello", asks: [{ id: ASK.id }] }]);
  hub.asked({ ...ASK, state: "approved", scope: "once" });
  await soon();
  const [hello, told] = client.events;
  expect(told).toMatchObject({ type: "ask", seq: (hello?.seq ?? 0) + 1, ask: { state: "approved" } });
  client.leave();
  await following;
});

test("whoever has a place but no socket yet does not watch, and whoever left does not either", async () => {
  const hub = hubWith([]);
  const client = follower();
  const opened = defer<FrameSocket>();
  const following = hub.follow(() => opened.promise);
  await soon();
  expect([hub.subscriberCount, hub.watcherCount]).toEqual([1, 0]);
  opened.resolve(client.socket);
  await soon();
  expect([hub.subscriberCount, hub.watcherCount]).toEqual([1, 1]);
  client.leave();
  await following;
  expect([hub.subscriberCount, hub.watcherCount]).toEqual([0, 0]);
  // Whoever waits for its own calls is told, and answers nobody's.
  const waiting = follower();
  const alone = hub.follow(async () => waiting.socket, { watches: false });
  await soon();
  expect([hub.subscriberCount, hub.watcherCount]).toEqual([1, 0]);
  hub.asked(ASK);
  await soon();
  expect(waiting.events).toMatchObject([{ type: "hello" }, { type: "ask", ask: { id: ASK.id } }]);
  waiting.leave();
  await alone;
  const refused = hub.follow(() => Promise.reject(new Error("gone")));
  await expect(refused).rejects.toThrow("gone");
  expect([hub.subscriberCount, hub.watcherCount]).toEqual([0, 0]);
});
