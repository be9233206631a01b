import type { StreamClientMessage, StreamServerMessage } from "@capsem/api";
import { type Deferred, defer, ignore, utf8, within } from "@capsem/base";
import { asyncDispose } from "./dispose.ts";
import { CapsemError, cancelled, errorOfObject } from "./error.ts";
import { type JobLine, type JobOutput, linesOf, outputOf } from "./job-text.ts";
import { SOCKET_CLOSE_MS, STDIN_CHUNK_BYTES } from "./limits.ts";
import { lostJob, whyEnded } from "./lost.ts";
import type { CallOptions } from "./operation.ts";
import { decodeServerFrame, encodeMessage, encodeStdin } from "./stream-frame.ts";
import type { TransportSocket } from "./transport.ts";

export interface JobChunk {
  readonly stream: "stdout" | "stderr";
  readonly data: Uint8Array;
}

type StartMessage = Extract<StreamClientMessage, { type: "start" }>;
type ExitMessage = Extract<StreamServerMessage, { type: "exit" }>;
export type StreamRequest = Omit<StartMessage, "type" | "kind"> & { readonly kind?: "exec" | "terminal" };
export type JobExit = Omit<ExitMessage, "type">;
type Kick = (jobId: string, signal: number) => Promise<void>;
type First = Extract<StreamClientMessage, { type: "start" | "attach" }>;

const SIGKILL = 9;
const NORMAL_CLOSURE = 1000;

/**
 * A running command. Iterate it for its output, which arrives no faster than it is taken; await it for its end.
 * One that is awaited and was never iterated has its output discarded. The job outlives this handle: `detach`
 * leaves it running, and `vm.attach(id, offset)` finds it again.
 */
export class Job implements AsyncIterable<JobChunk>, PromiseLike<JobExit>, AsyncDisposable {
  readonly #socket: Promise<TransportSocket>;
  readonly #kick: Kick;
  readonly #started: Deferred<string> = defer();
  #id: string | null = null;
  readonly #exit: Deferred<JobExit> = defer();
  readonly #signal: AbortSignal | undefined;
  #taken = 0;
  #mode: "unread" | "iterated" | "discarded" = "unread";
  #waiting: JobChunk | null = null;
  #arrival: Deferred<void> = defer();
  #departure: Deferred<void> = defer();
  #over = false;
  #detached = false;
  #failure: CapsemError | null = null;
  #sending: Promise<void> = Promise.resolve();

  /** `kick` signals a started job beside the stream, where no stdin that the guest does not read is in the way. */
  constructor(open: () => Promise<TransportSocket>, first: First, kick: Kick, options: CallOptions) {
    // Before the socket: a first frame that cannot be sent must leave no connection that nobody waits for.
    const frame = encodeMessage(first);
    this.#socket = open();
    ignore(this.#socket);
    this.#kick = kick;
    this.#signal = options.signal;
    ignore(this.#started.promise);
    ignore(this.#exit.promise);
    ignore(this.#post(frame));
    ignore(this.#drive());
    if (this.#signal?.aborted) this.#onAbort();
    else this.#signal?.addEventListener("abort", this.#onAbort, { once: true });
  }

  /** The durable id, once the guest started the command. */
  get id(): Promise<string> {
    return this.#started.promise;
  }

  /** Bytes of both streams taken so far, from the job's beginning: where `attach` goes on. */
  get offset(): number {
    return this.#taken;
  }

  /** Resolves when the connection took the bytes; the guest's reader sets the pace. */
  async write(data: string | Uint8Array): Promise<void> {
    if (this.#over) throw new CapsemError("wrong_state", "Cannot write stdin: the job ended");
    const bytes = typeof data === "string" ? utf8(data) : data;
    for (let at = 0; at < bytes.length; at += STDIN_CHUNK_BYTES)
      await this.#post(encodeStdin(bytes.subarray(at, at + STDIN_CHUNK_BYTES)));
  }

  closeStdin(): Promise<void> {
    return this.#post(encodeMessage({ type: "close_stdin" }));
  }

  resize(cols: number, rows: number): Promise<void> {
    return this.#post(encodeMessage({ type: "resize", terminal: { cols, rows } }));
  }

  /** 9 kills the whole process tree. */
  signal(signal: number): Promise<void> {
    if (this.#id !== null) return this.#kick(this.#id, signal);
    return this.#post(encodeMessage({ type: "signal", signal }));
  }

  /** The output as lines of text, instead of the iteration. */
  lines(): AsyncGenerator<JobLine> {
    return linesOf(this);
  }

  /** Output as text and the end together, instead of the iteration. */
  output(): Promise<JobOutput> {
    return outputOf(this, this.#exit.promise);
  }

  /** Drops the output that was not taken yet, and all that follows: its end comes without waiting for a reader. */
  discard(): void {
    this.#discard();
  }

  /** Leaves the job running and ends this handle: the iteration ends, the await rejects as cancelled. */
  detach(): void {
    this.#detached = true;
    this.#end(cancelled("job: detached"));
  }

  /** Of `await using`: kills the job if it runs, unless it was detached. */
  async [asyncDispose](): Promise<void> {
    if (this.#over) return;
    this.#discard();
    await this.signal(SIGKILL);
    await this.#exit.promise.catch(() => undefined);
  }

  // biome-ignore lint/suspicious/noThenProperty: a job is awaitable by contract.
  then<A = JobExit, B = never>(
    onExit?: ((exit: JobExit) => A | PromiseLike<A>) | null,
    onError?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.#mode === "unread") this.#discard();
    return this.#exit.promise.then(onExit, onError);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<JobChunk> {
    if (this.#mode !== "unread")
      throw new CapsemError("invalid_input", "Cannot iterate job: its output was already taken");
    this.#mode = "iterated";
    try {
      for (;;) {
        const chunk = this.#waiting;
        if (chunk !== null) {
          this.#waiting = null;
          this.#taken += chunk.data.length;
          this.#departure.resolve();
          yield chunk;
        } else if (this.#over) {
          if (this.#failure !== null && !this.#detached) throw this.#failure;
          return;
        } else {
          this.#arrival = defer();
          await this.#arrival.promise;
        }
      }
    } finally {
      this.#discard();
    }
  }

  #discard(): void {
    this.#mode = "discarded";
    this.#taken += this.#waiting?.data.length ?? 0;
    this.#waiting = null;
    this.#departure.resolve();
  }

  async #drive(): Promise<void> {
    try {
      const socket = await this.#socket;
      for await (const bytes of socket.receive()) {
        const frame = decodeServerFrame(bytes);
        if (this.#over) return;
        if (frame.kind === "output") await this.#deliver(frame);
        else if (this.#take(frame.message)) return;
      }
      throw lostJob(whyEnded(await socket.closed, socket.peer));
    } catch (thrown) {
      this.#end(
        thrown instanceof CapsemError
          ? thrown
          : new CapsemError("internal", "Cannot follow job: unexpected error", { cause: thrown }),
      );
    }
  }

  /** True at the job's end. */
  #take(message: StreamServerMessage): boolean {
    switch (message.type) {
      case "started":
        this.#taken = message.offset;
        this.#id = message.job_id;
        this.#started.resolve(message.job_id);
        return false;
      case "exit": {
        const { type: _, ...exit } = message;
        this.#exit.resolve(exit);
        this.#end(null);
        return true;
      }
      case "error":
        throw errorOfObject(message.error);
    }
  }

  async #deliver(chunk: JobChunk): Promise<void> {
    if (chunk.data.length === 0) return;
    if (this.#mode === "discarded") {
      this.#taken += chunk.data.length;
      return;
    }
    this.#departure = defer();
    this.#waiting = chunk;
    this.#arrival.resolve();
    await this.#departure.promise;
  }

  readonly #onAbort = (): void => {
    if (this.#over) return;
    ignore(this.signal(SIGKILL));
    this.#end(cancelled("job", this.#signal?.reason));
  };

  /** Frames leave in the order of the calls, also while the connection is being made. */
  #post(frame: Uint8Array): Promise<void> {
    const sent = this.#sending.then(async () => {
      const socket = await this.#socket;
      if (this.#failure === null || frame[0] !== 0) await socket.send(frame);
    });
    this.#sending = sent.catch(() => undefined);
    return sent;
  }

  #end(failure: CapsemError | null): void {
    if (this.#over) return;
    this.#over = true;
    this.#failure = failure;
    this.#signal?.removeEventListener("abort", this.#onAbort);
    if (failure !== null) {
      this.#started.reject(failure);
      this.#exit.reject(failure);
    }
    this.#arrival.resolve();
    this.#departure.resolve();
    const close = async () => {
      const socket = await this.#socket;
      // What was posted leaves first; stdin that the guest does not read would never do.
      await within(this.#sending, SOCKET_CLOSE_MS).catch(() => undefined);
      socket.close(NORMAL_CLOSURE);
    };
    ignore(close());
  }
}
