import { encodeFacts } from "@capsem/api";
import { type Deferred, defer, Failure } from "@capsem/base";
import type { CallOptions, RpcContext } from "@capsem/rpc";
import { expect, onTestFinished, test, vi } from "vitest";
import type { PolicyHolder } from "../policy/policy-holders.ts";
import { settled } from "../testing/ask-rig.ts";
import { type LinkParts, ProxyLink } from "./proxy-link.ts";
import type { SnapshotBook } from "./snapshot-book.ts";
import type { WorkerProcess } from "./worker-process.ts";

/** A link to a proxy that answers when the test says so, and a ledger that is there when it says so. */
function linked() {
  const holders = new Set<PolicyHolder>();
  const state = { rules: "first" };
  const isThere = defer<void>();
  const calls: { method: string; params: unknown; answer: Deferred<unknown> }[] = [];
  const lost = defer<void>();
  const condemned: string[] = [];
  const health: unknown[] = [];
  const worker = {
    ...{ ready: Promise.resolve(), isReady: true, isLost: false, lost: lost.promise, gone: lost.promise },
    call(method: string, params: unknown, { signal }: CallOptions = {}) {
      const answer = defer<unknown>();
      calls.push({ method, params, answer });
      signal?.addEventListener("abort", () => answer.reject(signal.reason), { once: true });
      return answer.promise;
    },
    condemn: (why: string) => void condemned.push(why),
  };
  const parts = {
    ledger: {
      ...{ append: () => undefined, appendAll: () => undefined, ready: () => isThere.promise },
      roomOf: () => ({ refusal: null, load: 0 }),
    },
    redactor: { text: (text: string) => ({ text }), json: (value: unknown) => ({ value }) },
    rules: { rules: () => ({ user: state.rules, corp: "", digest: state.rules }) } as unknown as SnapshotBook,
    holdPolicy(holder: PolicyHolder) {
      holders.add(holder);
      return () => void holders.delete(holder);
    },
    serverSet: () => ({ generation: 1, servers: [], pins: [] }),
    holdAsk: () => Promise.reject(new Failure("internal", "nobody is asked")),
    ...{
      reportPins: async () => [],
      reportHealth: (said: unknown) => void health.push(said),
      log: () => undefined,
    },
  } as unknown as LinkParts;
  const link = new ProxyLink(parts, {
    ...{ scope: "host", vm: () => null, needWorker: async () => undefined, onActivity: () => undefined },
  });
  const begun = link.begin(worker as unknown as WorkerProcess);
  return {
    ...{ health, link, worker, begun, holders, state, isThere, calls, condemned },
    /** `answer` is read in the same moment. */
    lose(answer?: Deferred<unknown>) {
      worker.isLost = true;
      lost.resolve();
      answer?.resolve({});
      for (const call of calls) call.answer.reject(new Failure("peer_lost", "the peer is gone"));
    },
  };
}

test("a proxy that is lost while its ledger is being opened is told of no rules, nor asked for ever", async () => {
  const { link, begun, holders, isThere, calls, lose } = linked();
  await settled();
  lose();
  await settled();
  isThere.resolve();
  await begun;
  expect([holders.size, calls.length]).toEqual([0, 0]);
  await expect(link.serving).rejects.toMatchObject({ kind: "worker_lost" });
});

test("a proxy that is lost with its last answer leaves no timer and no holder of rules", async () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  onTestFinished(() => void vi.useRealTimers());
  const { link, begun, holders, isThere, calls, lose } = linked();
  isThere.resolve();
  await settled();
  calls[0]?.answer.resolve({});
  await settled();
  expect(calls.map(({ method }) => method)).toEqual(["policy.set", "servers.set"]);
  lose(calls[1]?.answer);
  await begun;
  await settled();
  expect([holders.size, vi.getTimerCount()]).toEqual([0, 0]);
  await expect(link.serving).rejects.toMatchObject({ kind: "worker_lost" });
});

test("what a proxy says with the end of its channel is taken before its calls are given up", async () => {
  const { link, lose } = linked();
  const order: string[] = [];
  link.sink.append = () => void order.push("said");
  const close = defer<void>();
  link.sink.close = async () => {
    order.push("closed");
    close.resolve();
  };
  lose();
  // As long as a call takes to be read that came in the same turn.
  for (let hops = 0; hops < 50; hops += 1) await Promise.resolve();
  await link.handlers()["facts.append"]?.({ ...encodeFacts([]), bytes: 0 }, {} as RpcContext);
  await close.promise;
  expect(order).toEqual(["said", "closed"]);
});

test("rules that change while a proxy gets its first follow these, so that the newest are what it has", async () => {
  const { link, begun, holders, state, isThere, calls } = linked();
  isThere.resolve();
  await settled();
  const rules = () => calls.filter(({ method }) => method === "policy.set");
  expect(rules()).toHaveLength(1);
  state.rules = "second";
  const accepted = [...holders].map((holder) => holder.accept({} as never, new AbortController().signal));
  await settled();
  // The first may be large, and the second overtake it.
  expect(rules()).toHaveLength(1);
  rules()[0]?.answer.resolve({});
  await settled();
  expect(rules().map(({ params }) => (params as { user: string }).user)).toEqual(["first", "second"]);
  rules()[1]?.answer.resolve({});
  await Promise.all(accepted);
  for (const { answer } of calls) answer.resolve({});
  await settled();
  for (const { answer } of calls) answer.resolve({});
  await begun;
  await link.serving;
});

test.each([
  [
    new Failure(
      "upstream_failed",
      'Cannot use server "shop": the credential in its header is not registered',
    ),
    [{ server: "shop", state: "failed", error: "the credential in its header is not registered" }],
  ],
  [new Failure("timeout", "Timed out"), [{ server: "shop", state: "failed", error: "Timed out" }]],
  [new Failure("cancelled", "Cancelled"), []],
  [new Failure("not_found", "it is not declared"), []],
])("a look that ended with %s is the latest that is known of its server", async (failure, known) => {
  const { health, link, begun, isThere, calls } = linked();
  isThere.resolve();
  for (let count = 0; count < 2; count += 1) {
    await settled();
    for (const { answer } of calls) answer.resolve({});
  }
  await begun;
  const look = link.call("server.look", { server: "shop", refresh: true }, {});
  await expect.poll(() => calls.at(-1)?.method).toBe("server.look");
  calls.at(-1)?.answer.reject(failure);
  await expect(look).rejects.toBe(failure);
  expect(health).toEqual(known);
});
