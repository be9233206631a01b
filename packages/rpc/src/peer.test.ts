import type { Duplex } from "node:stream";
import { Failure } from "@capsem/base";
import { createMux, encodeMessagePack, type MuxStream, muxTransport, pump } from "@capsem/wire";
import { afterEach, expect, test } from "vitest";
import { duplexPair } from "./duplex-pair.ts";
import { createPeer, type Peer, type PeerOptions, RPC_LIMITS, type RpcContext } from "./index.ts";

type Side = Pick<PeerOptions, "handlers" | "streaming" | "onInternalError">;
interface Pair {
  readonly caller: Peer;
  readonly callee: Peer;
  readonly ends: readonly [Duplex, Duplex];
}

const made: Peer[] = [];
afterEach(() => {
  for (const peer of made.splice(0)) peer.close();
});

function pairOf(callee: Side, caller: Side = {}): Pair {
  const ends = duplexPair();
  const left = createPeer({ role: "host", duplex: ends[0], ...caller });
  const right = createPeer({ role: "guest", duplex: ends[1], ...callee });
  made.push(left, right);
  return { caller: left, callee: right, ends };
}

async function kindOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return "none";
  } catch (thrown) {
    return thrown instanceof Failure ? thrown.kind : `not a failure: ${thrown}`;
  }
}

/** Both sides forget a call once its last frames have crossed. */
async function checkNothingStays(pair: Pair): Promise<void> {
  await expect
    .poll(() => [pair.caller.streamCount, pair.callee.streamCount], { interval: 1, timeout: 10_000 })
    .toEqual([0, 0]);
}

/** A handler that ends when its signal does, and tells why. */
function held() {
  const state: { context: RpcContext | undefined; reason: unknown } = {
    context: undefined,
    reason: undefined,
  };
  const handler = (_params: unknown, context: RpcContext) =>
    new Promise((resolve) => {
      state.context = context;
      context.signal.addEventListener("abort", () => {
        state.reason = context.signal.reason;
        resolve(null);
      });
    });
  return { state, handler };
}

async function readText(stream: MuxStream): Promise<string> {
  let text = "";
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
    text += Buffer.from(chunk).toString();
  }
  return text;
}

const echo = async (params: unknown) => params;
const bytes = (text: string) => new Uint8Array(Buffer.from(text));

test("a call answers with what the handler returned", async () => {
  const pair = pairOf({ handlers: { echo } });
  for (const value of [null, 0, "x", [1, { a: new Uint8Array([1, 2]) }], { deep: { er: true } }]) {
    expect(await pair.caller.call("echo", value)).toEqual(value);
  }
  await checkNothingStays(pair);
});

test("nothing returned is nothing received", async () => {
  const pair = pairOf({ handlers: { nothing: async () => undefined } });
  expect(await pair.caller.call("nothing", undefined)).toBe(undefined);
});

test("both sides can call, at the same time", async () => {
  const pair = pairOf({ handlers: { echo } }, { handlers: { echo } });
  const calls = Array.from({ length: 100 }, (_, at) => [
    pair.caller.call("echo", at),
    pair.callee.call("echo", at === 0 ? 0 : -at),
  ]);
  expect(await Promise.all(calls.flat())).toEqual(calls.flatMap((_, at) => [at, at === 0 ? 0 : -at]));
  await checkNothingStays(pair);
});

test("a handler sees the trace and the time that is left", async () => {
  const contexts: RpcContext[] = [];
  const see = async (_params: unknown, context: RpcContext) => void contexts.push(context);
  const pair = pairOf({ handlers: { see } });
  await pair.caller.call("see", {}, { trace: "00-abc", timeoutMs: 60_000 });
  await pair.caller.call("see", {});
  await pair.caller.call("see", {}, { timeoutMs: Number.POSITIVE_INFINITY });
  expect(contexts.map((context) => context.trace)).toEqual(["00-abc", undefined, undefined]);
  expect(contexts[0]?.timeLeftMs).toBeGreaterThan(0);
  expect(contexts[0]?.timeLeftMs).toBeLessThanOrEqual(60_000);
  expect(contexts[1]?.timeLeftMs).toBe(undefined);
  expect(contexts[2]?.timeLeftMs).toBe(undefined);
});

test("whoever asks for its signal only when its caller is gone sees that it is", async () => {
  const contexts: RpcContext[] = [];
  const wait = (_params: unknown, context: RpcContext) => {
    contexts.push(context);
    return new Promise(() => undefined);
  };
  const pair = pairOf({ handlers: { wait } });
  const ending = new AbortController();
  const called = kindOf(pair.caller.call("wait", {}, { signal: ending.signal }));
  await expect.poll(() => contexts.length, { interval: 1, timeout: 10_000 }).toBe(1);
  const gone = contexts[0]?.stream.closed;
  ending.abort();
  expect(await called).toBe("cancelled");
  await gone;
  expect(contexts[0]?.signal.aborted).toBe(true);
});

test("a method that is not there is no_such_method", async () => {
  const pair = pairOf({
    handlers: { echo },
    streaming: { flow: async () => ({ result: 1, run: async () => undefined }) },
  });
  for (const method of ["nothing", "toString", "__proto__", "flow"]) {
    expect(await kindOf(pair.caller.call(method, {}))).toBe("no_such_method");
  }
  for (const method of ["nothing", "toString", "echo"]) {
    expect(await kindOf(pair.caller.open(method, {}))).toBe("no_such_method");
  }
  await checkNothingStays(pair);
});

test("a failure keeps kind, message and retryable, and nothing else", async () => {
  const pair = pairOf({
    handlers: {
      fails: async () => {
        throw new Failure("wrong_state", "Cannot stop VM: it is stopped", {
          retryable: true,
          detail: "secret",
        });
      },
    },
  });
  const failure = await pair.caller.call("fails", {}).catch((thrown: unknown) => thrown);
  expect(failure).toMatchObject({
    kind: "wrong_state",
    message: "Cannot stop VM: it is stopped",
    retryable: true,
  });
  expect(failure).toMatchObject({ detail: undefined });
  expect(failure).not.toHaveProperty("cause");
});

test("anything else that is thrown is internal, and told to the hook alone", async () => {
  const told: unknown[] = [];
  const pair = pairOf({
    onInternalError: (method, thrown) => told.push([method, String(thrown)]),
    handlers: {
      breaks: async () => {
        throw new TypeError("secret");
      },
      unsendable: async () => new Map(),
    },
  });
  await expect(pair.caller.call("breaks", {})).rejects.toMatchObject({
    kind: "internal",
    message: "Cannot answer call: internal error",
  });
  expect(await kindOf(pair.caller.call("unsendable", {}))).toBe("internal");
  expect(told).toEqual([
    ["breaks", "TypeError: secret"],
    ["unsendable", expect.stringContaining("Bug")],
  ]);
  await checkNothingStays(pair);
});

test("a deadline ends the call on both sides", async () => {
  const { state, handler } = held();
  const pair = pairOf({ handlers: { slow: handler } });
  expect(await kindOf(pair.caller.call("slow", {}, { timeoutMs: 5 }))).toBe("timeout");
  await checkNothingStays(pair);
  expect(state.reason).toBeInstanceOf(Failure);
  expect(await kindOf(pair.caller.call("slow", {}, { timeoutMs: 0 }))).toBe("timeout");
});

test("a callee keeps the time of a caller that does not", async () => {
  const { state, handler } = held();
  const [left, right] = duplexPair();
  made.push(createPeer({ role: "guest", duplex: right, handlers: { slow: handler } }));
  const mux = createMux({ role: "host", transport: muxTransport(left), onOpen: () => undefined });
  pump(left, mux);
  const stream = mux.open(1, "slow");
  await stream.write(sized({ timeLeftMs: 5, stream: false, params: {} }));
  stream.end();
  expect(await readText(stream)).toContain("timeout");
  expect(state.reason).toMatchObject({ kind: "timeout" });
  expect(mux.streamCount).toBe(0);
  mux.close();
});

test("an abort ends the call on both sides", async () => {
  const { state, handler } = held();
  const pair = pairOf({ handlers: { slow: handler } });
  const controller = new AbortController();
  const call = kindOf(pair.caller.call("slow", {}, { signal: controller.signal }));
  await expect.poll(() => state.context, { interval: 1, timeout: 10_000 }).toBeDefined();
  controller.abort();
  expect(await call).toBe("cancelled");
  await checkNothingStays(pair);
  expect(state.reason).toMatchObject({ kind: "cancelled" });
  expect(await kindOf(pair.caller.call("slow", {}, { signal: controller.signal }))).toBe("cancelled");
});

test("an answered call leaves its signal alone", async () => {
  const signals: AbortSignal[] = [];
  const see = async (_params: unknown, context: RpcContext) => void signals.push(context.signal);
  const pair = pairOf({ handlers: { see } });
  const controller = new AbortController();
  await pair.caller.call("see", {}, { signal: controller.signal, timeoutMs: 60_000 });
  controller.abort();
  await checkNothingStays(pair);
  expect(signals[0]?.aborted).toBe(false);
});

const LOSSES: [string, (pair: Pair) => void][] = [
  ["closes", (pair) => pair.callee.close()],
  ["loses its socket", (pair) => pair.ends[1].destroy()],
  ["breaks the protocol", (pair) => void pair.ends[1].write(new Uint8Array(64))],
];
for (const [name, lose] of LOSSES) {
  test(`a peer that ${name} ends every call at once`, async () => {
    const { state, handler } = held();
    const pair = pairOf({ handlers: { slow: handler }, streaming: { echo: echoStream } });
    const { stream } = await pair.caller.open("echo", 1);
    const calls = [1, 2, 3].map(() => kindOf(pair.caller.call("slow", {})));
    await expect.poll(() => pair.callee.streamCount, { interval: 1, timeout: 10_000 }).toBe(4);
    lose(pair);
    expect(await Promise.all(calls)).toEqual(["peer_lost", "peer_lost", "peer_lost"]);
    expect(await kindOf(stream.read())).toBe("lane_lost");
    expect(await kindOf(pair.caller.call("slow", {}))).toBe("peer_lost");
    await pair.callee.ended;
    await checkNothingStays(pair);
    expect(state.reason).toBeDefined();
  });
}

async function echoStream(params: unknown) {
  return {
    result: params,
    async run(stream: MuxStream) {
      for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read())
        await stream.write(chunk);
    },
  };
}

test("an opened stream carries bytes both ways after its answer", async () => {
  const pair = pairOf({ streaming: { echo: echoStream } });
  const { result, stream } = await pair.caller.open("echo", 7);
  expect(result).toBe(7);
  const written = stream.write(new Uint8Array(1_000_000).fill(0x61)).then(() => stream.end());
  expect((await readText(stream)).length).toBe(1_000_000);
  await written;
  await checkNothingStays(pair);
});

test("bytes that follow the answer at once are not lost", async () => {
  const pair = pairOf({
    streaming: { down: async () => ({ result: 1, run: (stream) => stream.write(bytes("right behind")) }) },
  });
  const { stream } = await pair.caller.open("down", {});
  stream.end();
  expect(await readText(stream)).toBe("right behind");
  await checkNothingStays(pair);
});

test("a run that ends first discards what the caller still sends", async () => {
  const pair = pairOf({ streaming: { deaf: async () => ({ result: 1, run: async () => undefined }) } });
  const { stream } = await pair.caller.open("deaf", {});
  expect(await stream.read()).toBe(null);
  await stream.write(new Uint8Array(1_000_000));
  stream.end();
  await checkNothingStays(pair);
});

test("a run that fails resets the stream", async () => {
  const told: string[] = [];
  const pair = pairOf({
    onInternalError: (method) => told.push(method),
    streaming: {
      fails: async () => ({ result: 1, run: () => Promise.reject(new Failure("disk_full", "Cannot read")) }),
      breaks: async () => ({ result: 1, run: () => Promise.reject(new TypeError("secret")) }),
    },
  });
  for (const method of ["fails", "breaks"]) {
    const { stream } = await pair.caller.open(method, {});
    expect(await kindOf(readText(stream))).toBe("reset");
  }
  expect(told).toEqual(["breaks"]);
  await checkNothingStays(pair);
});

test("an abort after the answer resets the stream and the handler's signal", async () => {
  const signals: AbortSignal[] = [];
  const pair = pairOf({
    streaming: {
      held: async (_params, context) => {
        signals.push(context.signal);
        return { result: 1, run: async (stream) => void (await stream.read()) };
      },
    },
  });
  const controller = new AbortController();
  const { stream } = await pair.caller.open("held", {}, { signal: controller.signal });
  controller.abort();
  expect(await kindOf(stream.read())).toBe("reset");
  await checkNothingStays(pair);
  expect(signals[0]?.aborted).toBe(true);
});

test("a message above the limit is refused on its way out, both ways", async () => {
  const large = new Uint8Array(RPC_LIMITS.messageBytesMax);
  const pair = pairOf({
    handlers: { large: async () => large, count: async (params) => (params as Uint8Array).length },
  });
  expect(await kindOf(pair.caller.call("count", large))).toBe("too_large");
  expect(await kindOf(pair.caller.call("large", {}))).toBe("too_large");
  const fits = RPC_LIMITS.messageBytesMax - 100;
  expect(await pair.caller.call("count", new Uint8Array(fits))).toBe(fits);
  await checkNothingStays(pair);
}, 30_000);

test("more calls than streams fail as too_many_streams and can be tried again", async () => {
  const { handler } = held();
  const pair = pairOf({ handlers: { slow: handler } });
  const controllers = Array.from({ length: 256 }, () => new AbortController());
  const calls = controllers.map(({ signal }) => kindOf(pair.caller.call("slow", {}, { signal })));
  await expect(pair.caller.call("slow", {})).rejects.toMatchObject({
    kind: "too_many_streams",
    retryable: true,
  });
  for (const controller of controllers) controller.abort();
  expect(new Set(await Promise.all(calls))).toEqual(new Set(["cancelled"]));
  await checkNothingStays(pair);
});

function sized(value: unknown): Uint8Array {
  const body = value instanceof Uint8Array ? value : encodeMessagePack(value);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  return new Uint8Array(Buffer.concat([length, body]));
}

const BAD_REQUESTS: [string, number, Uint8Array][] = [
  ["no request", 1, new Uint8Array(0)],
  ["half a length", 1, Uint8Array.of(0, 0)],
  ["half a request", 1, Uint8Array.of(0, 0, 0, 9, 0x80)],
  ["a length above the limit", 1, Uint8Array.of(1, 0, 0, 1)],
  ["a request that is no MessagePack", 1, sized(Uint8Array.of(0xc1))],
  ["a request without a stream field", 1, sized({ params: 1 })],
  ["a request with a field too many", 1, sized({ params: 1, stream: false, more: 1 })],
  ["a time that is over", 1, sized({ params: 1, stream: false, timeLeftMs: -1 })],
  ["another port", 2, sized({ params: 1, stream: false })],
];
for (const [name, port, request] of BAD_REQUESTS) {
  test(`${name} resets the stream and the peer goes on`, async () => {
    const [left, right] = duplexPair();
    const peer = createPeer({ role: "guest", duplex: right, handlers: { echo } });
    made.push(peer);
    const mux = createMux({ role: "host", transport: muxTransport(left), onOpen: () => undefined });
    pump(left, mux);
    const stream = mux.open(port, "echo");
    await stream.write(request);
    stream.end();
    expect(await kindOf(stream.read())).toBe("reset");
    expect(peer.streamCount).toBe(0);
    mux.close();
    expect((await peer.ended).kind).toBe("closed");
  });
}

const BAD_ANSWERS: [string, (stream: MuxStream) => unknown, string][] = [
  ["ends without an answer", (stream) => stream.end(), "internal"],
  ["resets the stream", (stream) => stream.reset("refused"), "internal"],
  ["has no room", (stream) => stream.reset("too_many_streams"), "too_many_streams"],
  ["answers with another shape", (stream) => stream.write(sized({ yes: 1 })), "bad_message"],
  ["answers with a broken error", (stream) => stream.write(sized({ error: { kind: "" } })), "bad_message"],
  ["announces too much", (stream) => stream.write(Uint8Array.of(255, 255, 255, 255)), "too_large"],
  [
    "ends within its answer",
    (stream) => stream.write(Uint8Array.of(0, 0, 0, 9)).then(() => stream.end()),
    "truncated",
  ],
];
for (const [name, answer, kind] of BAD_ANSWERS) {
  test(`a callee that ${name} is ${kind} for the caller`, async () => {
    const [left, right] = duplexPair();
    const peer = createPeer({ role: "guest", duplex: right });
    made.push(peer);
    const mux = createMux({
      role: "host",
      transport: muxTransport(left),
      onOpen: (stream) => void answer(stream),
    });
    pump(left, mux);
    expect(await kindOf(peer.call("echo", {}))).toBe(kind);
    await expect.poll(() => peer.streamCount, { interval: 1, timeout: 10_000 }).toBe(0);
    mux.close();
  });
}
