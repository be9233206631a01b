import { Duplex } from "node:stream";
import { Failure } from "@capsem/base";
import type { MuxStream } from "@capsem/wire";
import type { DownLimits } from "./limits.ts";

/** A multiplexed stream as Node's HTTP server takes a connection. Destroyed early, it resets the stream. */
export class StreamDuplex extends Duplex {
  /** Of the metadata line; null: the guest does not say. */
  readonly processName: string | null;
  readonly #stream: MuxStream;
  readonly #limits: DownLimits;
  #timer: NodeJS.Timeout | undefined;
  #requests = 0;

  constructor(stream: MuxStream, processName: string | null, limits: DownLimits) {
    super({ allowHalfOpen: true });
    this.#stream = stream;
    this.#limits = limits;
    this.processName = processName;
    void stream.closed.then(() => this.destroy());
  }

  requestBegan(): void {
    this.#requests += 1;
    clearTimeout(this.#timer);
  }

  requestEnded(): void {
    this.#requests -= 1;
    this.waitForRequest();
  }

  /** Destroys it unless a request begins in time; behind our end, unless the client ends too. */
  waitForRequest(): void {
    clearTimeout(this.#timer);
    if (this.#requests > 0 || this.destroyed) return;
    const { discardTimeoutMs, requestWaitMs } = this.#limits;
    this.#timer = setTimeout(() => this.destroy(), this.writableEnded ? discardTimeoutMs : requestWaitMs);
  }

  override _read(): void {
    this.#stream.read().then(
      (chunk) => this.push(chunk),
      (cause) => this.destroy(cause instanceof Failure ? undefined : cause),
    );
  }

  override _write(chunk: Uint8Array, _encoding: string, done: (error?: Error | null) => void): void {
    this.#stream.write(chunk).then(() => done(), done);
  }

  override _writev(
    chunks: readonly { readonly chunk: Uint8Array }[],
    done: (error?: Error | null) => void,
  ): void {
    // Headers and body leave together.
    Promise.all(chunks.map(({ chunk }) => this.#stream.write(chunk))).then(() => done(), done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#stream.end();
    this.waitForRequest();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearTimeout(this.#timer);
    // Of a stream that both sides have ended nothing is left to reset.
    this.#stream.reset("cancelled");
    done(error);
  }
}
