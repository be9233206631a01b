import type { FactToSend, ProxyFact } from "@capsem/api";
import { type Deferred, defer } from "@capsem/base";
import { expect, test } from "vitest";
import { Facts } from "./facts.ts";
import { PROXY_LIMITS } from "./limits.ts";

const who = {
  ...{ event_id: "0123456789ab", time_ms: 0, trace_id: null, turn_id: null },
  ...{ requester: "guest", client: null, token_id: null },
};
const fact = (rule_id: string): ProxyFact => ({
  ...{ kind: "decision", who, event: { type: "mcp.event" }, policy_digest: "0" },
  decision: { action: "allow", rule_id, reason: "" },
});
const ruleOf = (each: FactToSend) => (each.kind === "decision" ? each.decision.rule_id : "");

const NEVER = new AbortController().signal;

function facts(isHeld = false) {
  const appends: string[][] = [];
  const open: Deferred<void>[] = [];
  const logs: string[] = [];
  const queue = new Facts({
    append: (all) => {
      appends.push(all.map(ruleOf));
      if (!isHeld) return Promise.resolve();
      const answer = defer<void>();
      open.push(answer);
      return answer.promise;
    },
    log: (_, message) => void logs.push(message),
  });
  return { queue, appends, open, logs };
}

test("facts of one turn leave together, in the order in which they were taken", async () => {
  const { queue, appends } = facts();
  queue.grant({ facts: 10, bytes: 1e6 }, null);
  const [first, , last] = ["a", "b", "c"].map((name) => queue.takeIntent(fact(name), 0));
  expect(appends).toEqual([]);
  await Promise.all([queue.sent(first ?? 0, NEVER), queue.sent(last ?? 0, NEVER)]);
  expect(appends).toEqual([["a", "b", "c"]]);
});

test("an intent whose act waits for a place goes along with others, and leaves before its act", async () => {
  const { queue, appends } = facts();
  queue.grant({ facts: 10, bytes: 1e6 }, null);
  const places = ["a", "b"].map((name) => queue.takeIntent(fact(name), 0, false, true));
  queue.takeEnd(fact("end"), 0);
  await Promise.resolve();
  expect(appends).toEqual([]);
  await queue.sent(places[0] ?? 0, NEVER);
  expect(appends).toEqual([["a", "b", "end"]]);
  expect(queue.sent(places[1] ?? 0, NEVER)).toBe(undefined);
  queue.takeIntent(fact("c"), 0, false, true);
  await expect.poll(() => appends.length).toBe(2);
});

test("an intent that is on the channel waits for nothing that came behind it", async () => {
  const { queue, appends } = facts();
  queue.grant({ facts: 10, bytes: 1e6 }, null);
  const place = queue.takeIntent(fact("intent"), 0);
  await queue.sent(place, NEVER);
  queue.takeEnd(fact("end of another"), 0);
  expect(queue.sent(place, NEVER)).toBe(undefined);
  await Promise.resolve();
  expect(appends).toEqual([["intent"]]);
  await expect.poll(() => appends.length).toBe(2);
});

test("ends wait a moment, and go along with the next intent", async () => {
  const { queue, appends } = facts();
  queue.grant({ facts: 10, bytes: 1e6 }, null);
  queue.takeEnd(fact("end"), 0);
  await queue.sent(queue.takeIntent(fact("next"), 0), NEVER);
  expect(appends).toEqual([["end", "next"]]);
  queue.takeEnd(fact("alone"), 0);
  await expect.poll(() => appends.length).toBe(2);
});

test("credit counts facts and bytes; an end goes beyond it, and what it took has to come back", () => {
  const { queue } = facts();
  const intent = () => queue.takeIntent(fact("x"), 100);
  expect(intent).toThrow("has not made room");
  queue.grant({ facts: 1, bytes: PROXY_LIMITS.factBytes + 100 }, null);
  intent();
  expect(intent).toThrow("has not made room");
  queue.takeEnd(fact("end"), 100);
  queue.grant({ facts: 1, bytes: 1e6 }, null);
  expect(intent).toThrow("has not made room");
  queue.grant({ facts: 1, bytes: 0 }, null);
  intent();
});

test("what finds no room waits for it, one after the other, and nobody comes before those that wait", async () => {
  const { queue } = facts();
  const { signal } = new AbortController();
  const begun: string[] = [];
  const begin = async (name: string) => {
    const room = queue.room(0, 10_000, signal);
    if (room !== undefined) await room;
    queue.takeIntent(fact(name), 0, room !== undefined);
    begun.push(name);
  };
  const all = ["a", "b", "c"].map(begin);
  await new Promise(setImmediate);
  expect(begun).toEqual([]);
  queue.grant({ facts: 2, bytes: 1e6 }, null);
  // There is room for it, and it is not its turn.
  const late = begin("late");
  await expect.poll(() => begun).toEqual(["a", "b"]);
  queue.grant({ facts: 1, bytes: 0 }, null);
  await expect.poll(() => begun).toEqual(["a", "b", "c"]);
  queue.grant({ facts: 1, bytes: 0 }, null);
  await Promise.all([...all, late]);
  expect(begun).toEqual(["a", "b", "c", "late"]);
});

test("whoever waited for room and takes none leaves it to the next one", async () => {
  const { queue } = facts();
  const { signal } = new AbortController();
  const all = ["a", "b", "c"].map(() => queue.room(0, 2_000, signal));
  queue.grant({ facts: 10, bytes: 1e6 }, null);
  await Promise.all(all);
});

test("whoever waits for room is told of its end, leaves when cancelled, and is in nobody's way then", async () => {
  const { queue } = facts();
  const caller = new AbortController();
  const steady = new AbortController();
  const cancelled = queue.room(0, 10_000, caller.signal);
  const short = queue.room(0, 20, steady.signal);
  const last = queue.room(0, 10_000, steady.signal);
  caller.abort(new Error("left"));
  await expect(cancelled).rejects.toThrow("left");
  await expect(short).rejects.toMatchObject({ kind: "ledger_away", retryable: true });
  queue.grant({ facts: 1, bytes: 1e6 }, null);
  await last;
  queue.takeIntent(fact("last"), 0, true);
  const refused = queue.room(0, 10_000, steady.signal);
  queue.grant({ facts: 0, bytes: 0 }, { kind: "ledger_full", message: "it is full" });
  await refused;
  expect(() => queue.takeIntent(fact("x"), 0, true)).toThrow(
    expect.objectContaining({ kind: "ledger_full" }),
  );
});

test("while the service refuses, intents are refused in its words, and ends are taken", async () => {
  const { queue, appends } = facts();
  queue.grant({ facts: 10, bytes: 1e6 }, { kind: "ledger_full", message: "it is full" });
  expect(() => queue.takeIntent(fact("x"), 0)).toThrow(expect.objectContaining({ kind: "ledger_full" }));
  queue.takeEnd(fact("end"), 0);
  await expect.poll(() => appends).toEqual([["end"]]);
});

test("a slow service is given a bounded number of appends; nothing is lost, and what waits for them waits", async () => {
  const { queue, appends, open } = facts(true);
  queue.grant({ facts: 1_000, bytes: 1e9 }, null);
  let place = 0;
  for (let count = 0; count < 50; count += 1) {
    place = queue.takeIntent(fact(String(count)), 0);
    queue.flush();
  }
  expect(appends).toHaveLength(PROXY_LIMITS.appendsOpenMax);
  let isSent = false;
  void queue.sent(place, NEVER)?.then(() => {
    isSent = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(isSent).toBe(false);
  const caller = new AbortController();
  const left = queue.sent(place, caller.signal);
  caller.abort(new Error("it left"));
  await expect(left).rejects.toThrow("it left");
  open[0]?.resolve();
  await expect.poll(() => isSent).toBe(true);
  expect(appends.flat()).toEqual(Array.from({ length: 50 }, (_, index) => String(index)));
});

test("large facts leave in messages that a channel carries", async () => {
  const { queue, appends } = facts();
  queue.grant({ facts: 100, bytes: 1e9 }, null);
  const bytes = PROXY_LIMITS.appendBytesMax * 0.6;
  const places = ["a", "b", "c", "d"].map((name) => queue.takeIntent(fact(name), bytes));
  await queue.sent(places.at(-1) ?? 0, NEVER);
  expect(appends).toEqual([["a"], ["b"], ["c"], ["d"]]);
});

test("an append that fails stops all that would begin, until the service grants again", async () => {
  const { queue, open, logs } = facts(true);
  queue.grant({ facts: 10, bytes: 1e6 }, null);
  await queue.sent(queue.takeIntent(fact("a"), 0), NEVER);
  const waiting = queue.room(1e7, 60_000, NEVER);
  open[0]?.reject(new Error("gone"));
  await expect.poll(() => logs).toEqual(["facts are not recorded"]);
  // Whoever waits for room is told at once.
  await waiting;
  expect(() => queue.takeIntent(fact("b"), 0)).toThrow("does not take it");
  queue.grant({ facts: 0, bytes: 0 }, null);
  queue.takeIntent(fact("b"), 0);
});
