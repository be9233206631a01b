import { Failure, ignore } from "@capsem/base";
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
  return start(mux, method, params, options, true);
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
  const { signal } = options;
  const end = new EarlyEnd(stream, method, signal);
  if (timeLeftMs !== undefined) end.after(timeLeftMs);
  try {
    const opened = await exchange(stream, message, isStream);
    end.answered(isStream);
    return opened;
  } catch (thrown) {
    end.answered(false);
    stream.reset("cancelled");
    throw end.reason ?? asCallFailure(method, thrown);
  }
}

/** The deadline and the abort of the caller reset the stream, which ends what waits for it and is seen by the callee at once. */
class EarlyEnd {
  /** Why it was given up. */
  reason: Failure | undefined;
  readonly #stream: MuxStream;
  readonly #method: string;
  readonly #signal: AbortSignal | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(stream: MuxStream, method: string, signal: AbortSignal | undefined) {
    this.#stream = stream;
    this.#method = method;
    this.#signal = signal;
    signal?.addEventListener("abort", this.#onAbort, { once: true });
  }

  after(timeoutMs: number): void {
    this.#timer = setTimeout(() => this.#giveUp(timedOut(this.#method, timeoutMs)), timeoutMs);
  }

  /** Of an open stream the signal goes on to be the end. */
  answered(isOpen: boolean): void {
    clearTimeout(this.#timer);
    if (this.#signal === undefined) return;
    if (isOpen) void this.#stream.closed.then(() => this.#leave());
    else this.#leave();
  }

  readonly #onAbort = (): void => this.#giveUp(cancelled(this.#method, this.#signal));

  #giveUp(reason: Failure): void {
    this.reason ??= reason;
    this.#stream.reset("cancelled");
  }

  #leave(): void {
    this.#signal?.removeEventListener("abort", this.#onAbort);
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
  // What ends one of them ends both, and is told by the first that is waited for.
  ignore(written);
  const reader = createByteReader(stream);
  const bytes = await reader.takeSized(RPC_LIMITS.messageBytesMax);
  await written;
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
