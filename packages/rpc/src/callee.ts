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
class ServedCall implements RpcContext {
  readonly stream: MuxStream;
  readonly #request: Request;
  readonly #options: CalleeOptions;
  readonly #deadlineMs: number | undefined;
  /** Made when somebody asks for the signal: most handlers have nothing to wait for. */
  #controller: AbortController | undefined;
  /** Why it is aborted. */
  #aborted: Failure | undefined;
  #isDone = false;

  constructor(stream: MuxStream, request: Request, options: CalleeOptions) {
    this.stream = stream;
    this.#request = request;
    this.#options = options;
    const { timeLeftMs } = request;
    this.#deadlineMs = timeLeftMs === undefined ? undefined : performance.now() + timeLeftMs;
    void stream.closed.then(() => {
      if (!this.#isDone) this.#abort(new Failure("cancelled", "The caller is gone"));
    });
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted !== undefined) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  get timeLeftMs(): number | undefined {
    return this.#deadlineMs === undefined ? undefined : Math.max(0, this.#deadlineMs - performance.now());
  }

  get trace(): string | undefined {
    return this.#request.trace;
  }

  /** The work is over: a later end of the stream is no abort. */
  done(): void {
    this.#isDone = true;
  }

  /** The handler's answer, or a timeout when the caller's time is over first. Never rejects. */
  answer(): Promise<Outcome> {
    const { timeLeftMs } = this.#request;
    const handled = this.#handle();
    if (timeLeftMs === undefined) return handled;
    return new Promise<Outcome>((resolve) => {
      const late = () => resolve(this.#timedOut(timeLeftMs));
      const timer = setTimeout(late, Math.min(timeLeftMs, RPC_LIMITS.timeoutMsMax));
      void handled.then((outcome) => {
        clearTimeout(timer);
        resolve(outcome);
      });
    });
  }

  #timedOut(timeLeftMs: number): Outcome {
    const text = `Cannot answer ${this.stream.tag}: not done within ${timeLeftMs} ms`;
    const failure = new Failure("timeout", text);
    this.#abort(failure);
    return { answer: answerOf(failure) };
  }

  #abort(reason: Failure): void {
    this.#aborted ??= reason;
    this.#controller?.abort(reason);
  }

  async #handle(): Promise<Outcome> {
    const method = this.stream.tag;
    const { params, stream } = this.#request;
    try {
      if (stream) {
        const { result, run } = await this.#find(this.#options.streaming)(params, this);
        return { answer: { ok: result }, run };
      }
      return { answer: { ok: await this.#find(this.#options.handlers)(params, this) } };
    } catch (thrown) {
      if (!(thrown instanceof Failure)) this.#options.onInternalError(method, thrown);
      return { answer: answerOf(thrown) };
    }
  }

  #find<T>(table: Readonly<Record<string, T>>): T {
    const method = this.stream.tag;
    const handler = Object.hasOwn(table, method) ? table[method] : undefined;
    if (handler === undefined) throw new Failure("no_such_method", `Cannot call ${method}: no such method`);
    return handler;
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
