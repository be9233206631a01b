import { type Deferred, defer, type Failure } from "@capsem/base";
import { HOP_BY_HOP, type HttpBody, type HttpFailureKind, type HttpHeader, httpFailure } from "@capsem/net";
import { networkFailure } from "./failures.ts";
import { EGRESS_LIMITS } from "./limits.ts";
import type { SecretFilter } from "./secret-filter.ts";

export interface Head {
  readonly status: number;
  readonly headers: HttpHeader[];
}

/** How an exchange ended, for the one row that says so. */
export interface ExchangeEnd {
  readonly status: number | null;
  readonly bytesReceived: number;
  readonly failure: Failure<HttpFailureKind> | null;
  /** It ended before there was a connection. */
  readonly isUnconnected: boolean;
}

/**
 * One request and its answer, as the dispatcher's handler and as the caller's body. What a slow caller has not read
 * stays with the server.
 */
export class Exchange implements HttpBody {
  readonly head: Promise<Head>;
  readonly #host: string;
  readonly #filter: SecretFilter | null;
  readonly #head: Deferred<Head> = defer();
  readonly #onEnd: (end: ExchangeEnd) => void;
  #abort: ((cause: Error) => void) | null = null;
  #resume: (() => void) | null = null;
  #reader: Deferred<Uint8Array | null> | null = null;
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #isPaused = false;
  #isConnected = false;
  /** All has come, or nothing more will. */
  #isOver = false;
  #failure: Failure<HttpFailureKind> | null = null;
  #status: number | null = null;
  #bytesReceived = 0;

  /** `onEnd` is told once, at once. */
  constructor(host: string, filter: SecretFilter | null, onEnd: (end: ExchangeEnd) => void) {
    this.#host = host;
    this.#filter = filter;
    this.head = this.#head.promise;
    this.#onEnd = onEnd;
    // Who has left does not hear of it.
    this.head.catch(() => undefined);
  }

  /** Ends it where it is; closes its connection. */
  fail(failure: Failure<HttpFailureKind>): void {
    if (this.#isOver) return;
    this.#over(failure);
    this.#abort?.(failure);
  }

  async read(): Promise<Uint8Array | null> {
    const chunk = this.#waiting.shift();
    if (chunk !== undefined) {
      this.#waitingBytes -= chunk.length;
      this.#goOn();
      return chunk;
    }
    if (this.#failure !== null) throw this.#failure;
    if (this.#isOver) return null;
    this.#reader = defer();
    return this.#reader.promise;
  }

  cancel(): void {
    // A failure costs its stack; most answers were read to their end.
    if (this.#isOver && this.#waitingBytes === 0) return;
    this.fail(httpFailure("cancelled", "Cannot read the answer: cancelled"));
    this.#waiting.length = 0;
    this.#waitingBytes = 0;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    try {
      for (let chunk = await this.read(); chunk !== null; chunk = await this.read()) yield chunk;
    } finally {
      this.cancel();
    }
  }

  // What follows is for the dispatcher.

  onConnect(abort: (cause?: Error) => void): void {
    this.#isConnected = true;
    this.#abort = abort;
    if (this.#isOver) abort(this.#failure ?? undefined);
  }

  onHeaders(status: number, raw: Buffer[], resume: () => void): boolean {
    // 100 and 103: the answer is still to come.
    if (status < 200) return true;
    this.#resume = resume;
    const headers = this.#headersOf(raw);
    if (headers === null) {
      const limit = EGRESS_LIMITS.answerHeadersMax;
      this.fail(
        httpFailure("upstream_failed", `Cannot fetch from ${this.#host}: it has over ${limit} headers`),
      );
      return false;
    }
    this.#status = status;
    this.#head.resolve({ status, headers });
    return true;
  }

  onData(chunk: Buffer): boolean {
    this.#bytesReceived += chunk.length;
    this.#give(this.#filter === null ? chunk : this.#filter.push(chunk));
    this.#isPaused = this.#waitingBytes >= EGRESS_LIMITS.bodyBytesWaitingMax;
    return !this.#isPaused;
  }

  onComplete(): void {
    if (this.#filter !== null) this.#give(this.#filter.end());
    this.#over(null);
  }

  onError(thrown: unknown): void {
    this.#over(networkFailure(thrown, this.#host, this.#isConnected));
  }

  #give(chunk: Buffer): void {
    if (chunk.length === 0) return;
    const reader = this.#reader;
    if (reader !== null) {
      this.#reader = null;
      reader.resolve(chunk);
      return;
    }
    this.#waiting.push(chunk);
    this.#waitingBytes += chunk.length;
  }

  #goOn(): void {
    if (!this.#isPaused || this.#isOver || this.#waitingBytes >= EGRESS_LIMITS.bodyBytesWaitingMax / 2)
      return;
    this.#isPaused = false;
    this.#resume?.();
  }

  #over(failure: Failure<HttpFailureKind> | null): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#failure = failure;
    const isUnconnected = !this.#isConnected;
    this.#onEnd({ status: this.#status, bytesReceived: this.#bytesReceived, failure, isUnconnected });
    this.#head.reject(failure);
    const reader = this.#reader;
    this.#reader = null;
    if (failure === null) reader?.resolve(null);
    else reader?.reject(failure);
  }

  /** Null: too many. */
  #headersOf(raw: readonly Buffer[]): HttpHeader[] | null {
    if (raw.length > EGRESS_LIMITS.answerHeadersMax * 2) return null;
    const headers: HttpHeader[] = [];
    for (let at = 0; at + 1 < raw.length; at += 2) {
      const name = (raw[at] ?? "").toString("latin1").toLowerCase();
      if (HOP_BY_HOP.has(name)) continue;
      const value = (raw[at + 1] ?? "").toString("latin1");
      headers.push([name, this.#filter === null ? value : this.#filter.text(value)]);
    }
    return headers;
  }
}
