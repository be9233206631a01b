import { Failure } from "@capsem/base";
import { createByteReader, discardRest, type MuxStream, prefixedStream } from "@capsem/wire";
import {
  type Answer,
  answerOf,
  encodeMessage,
  parseRequest,
  type Request,
  writeParts,
} from "./call-message.ts";
import { RPC_LIMITS, RPC_PORT } from "./limits.ts";
import type { Handler, RpcContext, StreamAnswer, StreamHandler } from "./types.ts";

export interface CalleeOptions {
  readonly handlers: Readonly<Record<string, Handler>>;
  readonly streaming: Readonly<Record<string, StreamHandler>>;
  /** Told of everything thrown that is not a Failure; the caller only sees "internal". */
  readonly onInternalError: (method: string, thrown: unknown) => void;
}

/** Serves one call. Never rejects; the stream is over when it resolves, or the caller's to end. */
export async function serveCall(stream: MuxStream, options: CalleeOptions): Promise<void> {
  try {
    await serve(stream, options);
  } catch (thrown) {
    // The stream is gone, or the caller broke the rules of a call.
    if (!(thrown instanceof Failure)) options.onInternalError(stream.tag, thrown);
    stream.reset(thrown instanceof Failure ? "protocol_error" : "internal");
  }
}

async function serve(stream: MuxStream, options: CalleeOptions): Promise<void> {
  if (stream.port !== RPC_PORT) return stream.reset("no_such_port");
  const reader = createByteReader(stream);
  const bytes = await reader.takeSized(RPC_LIMITS.messageBytesMax);
  if (bytes === null) return stream.reset("protocol_error");
  const raw = prefixedStream(stream, reader.rest());
  const call = new ServedCall(raw, parseRequest(bytes), options);
  const { answer, run } = await call.answer();
  await writeParts(stream, encodeOrExplain(answer, stream.tag, options));
  if (run !== undefined && !(await runStream(raw, run, options))) return;
  call.done();
  raw.end();
  await discardRest(raw);
}

/** False when the run failed; the stream is then reset. */
async function runStream(
  stream: MuxStream,
  run: StreamAnswer["run"],
  options: CalleeOptions,
): Promise<boolean> {
  try {
    await run(stream);
    return true;
  } catch (thrown) {
    if (!(thrown instanceof Failure)) options.onInternalError(stream.tag, thrown);
    stream.reset("internal");
    return false;
  }
}

interface Outcome {
  readonly answer: Answer;
  readonly run?: StreamAnswer["run"];
}

/** One request between its arrival and its end: its signal, its time, its handler. */
class ServedCall {
  readonly #stream: MuxStream;
  readonly #request: Request;
  readonly #options: CalleeOptions;
  readonly #controller = new AbortController();
  #isDone = false;

  constructor(stream: MuxStream, request: Request, options: CalleeOptions) {
    this.#stream = stream;
    this.#request = request;
    this.#options = options;
    void stream.closed.then(() => {
      if (!this.#isDone) this.#controller.abort(new Failure("cancelled", "The caller is gone"));
    });
  }

  /** The work is over: a later end of the stream is no abort. */
  done(): void {
    this.#isDone = true;
  }

  /** The handler's answer, or a timeout when the caller's time is over first. Never rejects. */
  async answer(): Promise<Outcome> {
    const { timeLeftMs } = this.#request;
    if (timeLeftMs === undefined) return this.#handle(undefined);
    const handled = this.#handle(performance.now() + timeLeftMs);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<Outcome>((resolve) => {
      timer = setTimeout(
        () => resolve(this.#timedOut(timeLeftMs)),
        Math.min(timeLeftMs, RPC_LIMITS.timeoutMsMax),
      );
    });
    try {
      return await Promise.race([handled, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  #timedOut(timeLeftMs: number): Outcome {
    const text = `Cannot answer ${this.#stream.tag}: not done within ${timeLeftMs} ms`;
    const failure = new Failure("timeout", text);
    this.#controller.abort(failure);
    return { answer: answerOf(failure) };
  }

  async #handle(deadline: number | undefined): Promise<Outcome> {
    const method = this.#stream.tag;
    const { params, stream } = this.#request;
    try {
      if (stream) {
        const { result, run } = await this.#find(this.#options.streaming)(params, this.#context(deadline));
        return { answer: { ok: result }, run };
      }
      return { answer: { ok: await this.#find(this.#options.handlers)(params, this.#context(deadline)) } };
    } catch (thrown) {
      if (!(thrown instanceof Failure)) this.#options.onInternalError(method, thrown);
      return { answer: answerOf(thrown) };
    }
  }

  #find<T>(table: Readonly<Record<string, T>>): T {
    const method = this.#stream.tag;
    const handler = Object.hasOwn(table, method) ? table[method] : undefined;
    if (handler === undefined) throw new Failure("no_such_method", `Cannot call ${method}: no such method`);
    return handler;
  }

  #context(deadline: number | undefined): RpcContext {
    return {
      signal: this.#controller.signal,
      get timeLeftMs() {
        return deadline === undefined ? undefined : Math.max(0, deadline - performance.now());
      },
      trace: this.#request.trace,
      stream: this.#stream,
    };
  }
}

/** An answer that cannot be sent as it is becomes one that says so. */
function encodeOrExplain(answer: Answer, method: string, options: CalleeOptions): readonly Uint8Array[] {
  try {
    return encodeMessage(answer);
  } catch (thrown) {
    if (!(thrown instanceof Failure)) options.onInternalError(method, thrown);
    return encodeMessage(answerOf(thrown));
  }
}
