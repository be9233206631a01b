import { Failure } from "@capsem/base";
import { createByteReader, discardRest, type Mux, type MuxStream, prefixedStream } from "@capsem/wire";
import { encodeMessage, parseAnswer, writeParts } from "./call-message.ts";
import { RPC_LIMITS, RPC_PORT } from "./limits.ts";
import type { CallOptions, OpenedCall } from "./types.ts";

export async function callMethod(
  mux: Mux,
  method: string,
  params: unknown,
  options: CallOptions,
): Promise<unknown> {
  const opened = await start(mux, method, params, options, false);
  void discardRest(opened.stream);
  return opened.result;
}

export async function openMethod(
  mux: Mux,
  method: string,
  params: unknown,
  options: CallOptions,
): Promise<OpenedCall> {
  const opened = await start(mux, method, params, options, true);
  resetOnAbort(opened.stream, options.signal);
  return opened;
}

async function start(
  mux: Mux,
  method: string,
  params: unknown,
  options: CallOptions,
  isStream: boolean,
): Promise<OpenedCall> {
  if (options.signal?.aborted) throw cancelled(method, options.signal);
  const timeLeftMs = timeLimitOf(options.timeoutMs);
  if (timeLeftMs !== undefined && timeLeftMs <= 0) throw timedOut(method, timeLeftMs);
  const message = encodeMessage({ timeLeftMs, trace: options.trace, stream: isStream, params });
  const stream = openStream(mux, method);
  try {
    const exchanged = exchange(stream, message, isStream);
    return await bounded(exchanged, stream, method, timeLeftMs, options.signal);
  } catch (thrown) {
    stream.reset("cancelled");
    throw asCallFailure(method, thrown);
  }
}

async function exchange(
  stream: MuxStream,
  message: readonly Uint8Array[],
  isStream: boolean,
): Promise<OpenedCall> {
  // A callee may answer before it has read all: both go on together.
  const written = writeParts(stream, message);
  if (!isStream) stream.end();
  const reader = createByteReader(stream);
  const [bytes] = await Promise.all([reader.takeSized(RPC_LIMITS.messageBytesMax), written]);
  if (bytes === null) throw new Failure("internal", "the stream ended without an answer");
  const answer = parseAnswer(bytes);
  if ("error" in answer) {
    const { kind, message: text, retryable, facts } = answer.error;
    void discardRest(stream);
    stream.end();
    throw new Failure(kind, text, { retryable, ...(facts === undefined ? {} : { facts }) });
  }
  return { result: answer.ok, stream: prefixedStream(stream, reader.rest()) };
}

/** The deadline and the abort of the caller reset the stream, which the callee sees at once. */
function bounded<T>(
  work: Promise<T>,
  stream: MuxStream,
  method: string,
  timeoutMs: number | undefined,
  signal: AbortSignal | undefined,
): Promise<T> {
  if (timeoutMs === undefined && signal === undefined) return work;
  return new Promise<T>((resolve, reject) => {
    const giveUp = (failure: Failure) => {
      stream.reset("cancelled");
      reject(failure);
    };
    const onAbort = () => giveUp(cancelled(method, signal));
    const timer =
      timeoutMs === undefined ? undefined : setTimeout(() => giveUp(timedOut(method, timeoutMs)), timeoutMs);
    signal?.addEventListener("abort", onAbort, { once: true });
    const settled = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    };
    work.then(
      (value) => {
        settled();
        resolve(value);
      },
      (thrown: unknown) => {
        settled();
        reject(thrown);
      },
    );
  });
}

function resetOnAbort(stream: MuxStream, signal: AbortSignal | undefined): void {
  if (signal === undefined) return;
  const onAbort = () => stream.reset("cancelled");
  if (signal.aborted) {
    onAbort();
    return;
  }
  signal.addEventListener("abort", onAbort, { once: true });
  void stream.closed.then(() => signal.removeEventListener("abort", onAbort));
}

function openStream(mux: Mux, method: string): MuxStream {
  try {
    return mux.open(RPC_PORT, method);
  } catch (thrown) {
    throw asCallFailure(method, thrown);
  }
}

function timeLimitOf(timeoutMs: number | undefined): number | undefined {
  return timeoutMs === undefined || timeoutMs > RPC_LIMITS.timeoutMsMax ? undefined : timeoutMs;
}

function asCallFailure(method: string, thrown: unknown): unknown {
  if (!(thrown instanceof Failure)) return thrown;
  if (thrown.kind === "lane_lost") {
    return new Failure("peer_lost", `Cannot call ${method}: the peer is gone`, { cause: thrown });
  }
  if (thrown.kind === "reset") {
    const isFull = thrown.detail === "too_many_streams";
    const kind = isFull ? "too_many_streams" : "internal";
    const message = `Cannot call ${method}: the peer reset the stream (${thrown.detail ?? "no code"})`;
    return new Failure(kind, message, { cause: thrown, retryable: isFull });
  }
  return thrown;
}

function cancelled(method: string, signal: AbortSignal | undefined): Failure {
  return new Failure("cancelled", `Cannot call ${method}: cancelled`, { cause: signal?.reason });
}

function timedOut(method: string, timeoutMs: number): Failure {
  return new Failure("timeout", `Cannot call ${method}: no answer within ${timeoutMs} ms`);
}
