import { assert, Bug, type Deferred, defer, Failure } from "@capsem/base";
import { WIRE_LIMITS } from "./limits.ts";
import { ReceiveQueue } from "./receive-queue.ts";
import type { Borrower, MuxStream, ResetCode } from "./types.ts";

/** What a stream asks of its mux. */
export interface StreamOwner {
  /** The stream may have something to send. */
  wantsToSend(stream: Stream): void;
  /** The stream has taken enough bytes for a grant to be due. */
  owesWindow(stream: Stream): void;
  /** The stream was reset on this side: tell the peer. */
  sendReset(stream: Stream, code: ResetCode): void;
  /** Both directions are over: forget the stream. */
  finished(stream: Stream): void;
}

/** What the mux should do about a frame that the stream was given. */
export type Delivery = "ok" | "over_credit" | "after_end";

/** Payload of one data frame that we send: a round of the other streams waits for no more than this. */
const DATA_BYTES_MAX = 32_768;
const GRANT_BYTES = WIRE_LIMITS.streamCreditBytes / 2;
const DONE: Promise<void> = Promise.resolve();

interface PendingWrite {
  readonly chunk: Uint8Array;
  sentBytes: number;
  waiter: Deferred<void> | undefined;
}

export class Stream implements MuxStream {
  readonly id: number;
  readonly port: number;
  readonly tag: string;
  readonly closed: Promise<void>;
  /** Whether the peer has been sent (or has sent) the open frame. */
  announced: boolean;

  readonly #owner: StreamOwner;
  readonly #closed = defer<void>();
  readonly #received = new ReceiveQueue();
  #reader: Deferred<Uint8Array | null> | undefined;
  #peerEnded = false;
  #receiveCredit: number = WIRE_LIMITS.streamCreditBytes;
  #owedBytes = 0;
  readonly #pending: PendingWrite[] = [];
  #sendCredit: number = WIRE_LIMITS.streamCreditBytes;
  #borrower: Borrower | undefined;
  #ending = false;
  #endSent = false;
  #failure: Failure | undefined;
  #finished = false;

  constructor(owner: StreamOwner, id: number, port: number, tag: string, announced: boolean) {
    this.#owner = owner;
    this.id = id;
    this.port = port;
    this.tag = tag;
    this.announced = announced;
    this.closed = this.#closed.promise;
  }

  read(): Promise<Uint8Array | null> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    const chunk = this.#received.take();
    if (chunk !== undefined) {
      this.#consumed(chunk.length);
      return Promise.resolve(chunk);
    }
    if (this.#peerEnded) return Promise.resolve(null);
    if (this.#reader !== undefined) return Promise.reject(new Bug(`stream ${this.id} has two readers`));
    this.#reader = defer();
    return this.#reader.promise;
  }

  write(chunk: Uint8Array): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#ending) return Promise.reject(new Bug(`stream ${this.id} is written after its end`));
    if (this.#borrower !== undefined) return Promise.reject(new Bug(`stream ${this.id} is lent`));
    if (chunk.length === 0) return DONE;
    const write: PendingWrite = { chunk, sentBytes: 0, waiter: undefined };
    this.#pending.push(write);
    this.#owner.wantsToSend(this);
    if (write.sentBytes === chunk.length) return DONE;
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    write.waiter = defer();
    return write.waiter.promise;
  }

  lend(borrower: Borrower): number {
    if (this.#failure !== undefined) throw this.#failure;
    const isIdle = this.#pending.length === 0 && !this.#ending && this.#borrower === undefined;
    assert(isIdle && this.announced, `stream ${this.id} is lent while it sends`);
    this.#borrower = borrower;
    const credit = this.#sendCredit;
    this.#sendCredit = 0;
    return credit;
  }

  takeBack(credit: number): void {
    // A stream that is over has revoked its loan.
    if (this.#borrower === undefined) return;
    this.#borrower = undefined;
    this.#sendCredit = credit;
  }

  end(): void {
    if (this.#ending || this.#finished) return;
    assert(this.#borrower === undefined, `stream ${this.id} is ended while it is lent`);
    this.#ending = true;
    this.#owner.wantsToSend(this);
  }

  reset(code: ResetCode): void {
    if (this.#finished) return;
    this.fail(new Failure("reset", `Cannot use stream ${this.id}: reset here (${code})`, { detail: code }));
    this.#owner.sendReset(this, code);
  }

  // What follows is for the mux alone.

  /** Something to send, credit for it, and not over. */
  get isReady(): boolean {
    if (this.#finished) return false;
    if (this.#pending.length > 0) return this.#sendCredit > 0;
    return this.#ending && !this.#endSent;
  }

  /** The payload of the next data frame, or undefined when the end frame is next. Only when ready. */
  takePayload(): Uint8Array | undefined {
    const write = this.#pending[0];
    if (write === undefined) return undefined;
    const from = write.sentBytes;
    const to = Math.min(write.chunk.length, from + Math.min(DATA_BYTES_MAX, this.#sendCredit));
    this.#sendCredit -= to - from;
    write.sentBytes = to;
    if (to === write.chunk.length) {
      this.#pending.shift();
      write.waiter?.resolve();
    }
    return from === 0 && to === write.chunk.length ? write.chunk : write.chunk.subarray(from, to);
  }

  endWasSent(): void {
    this.#endSent = true;
    this.#settle();
  }

  /** Bytes to grant now; 0 when none are due. */
  takeGrant(): number {
    const bytes = this.#finished || this.#peerEnded ? 0 : this.#owedBytes;
    this.#owedBytes -= bytes;
    this.#receiveCredit += bytes;
    return bytes;
  }

  deliver(payload: Uint8Array): Delivery {
    if (this.#peerEnded) return "after_end";
    if (payload.length > this.#receiveCredit) return "over_credit";
    this.#receiveCredit -= payload.length;
    const reader = this.#reader;
    if (reader === undefined) {
      this.#received.push(payload);
    } else {
      this.#reader = undefined;
      reader.resolve(payload);
      this.#consumed(payload.length);
    }
    return "ok";
  }

  /** False when the grant would lift the credit above its ceiling. */
  granted(bytes: number): boolean {
    if (this.#sendCredit + bytes > WIRE_LIMITS.streamCreditBytes) return false;
    if (this.#borrower !== undefined) {
      // What it has used is its own to know, and so is the ceiling.
      this.#borrower.granted(bytes);
      return true;
    }
    this.#sendCredit += bytes;
    this.#owner.wantsToSend(this);
    return true;
  }

  deliverEnd(): Delivery {
    if (this.#peerEnded) return "after_end";
    this.#peerEnded = true;
    this.#reader?.resolve(null);
    this.#reader = undefined;
    this.#settle();
    return "ok";
  }

  /** Ends both directions here without a word to the peer. */
  fail(failure: Failure): void {
    if (this.#finished) return;
    this.#failure = failure;
    this.#received.clear();
    this.#reader?.reject(failure);
    this.#reader = undefined;
    for (const write of this.#pending.splice(0)) write.waiter?.reject(failure);
    const borrower = this.#borrower;
    this.#borrower = undefined;
    borrower?.revoked(failure);
    this.#finish();
  }

  #consumed(bytes: number): void {
    this.#owedBytes += bytes;
    if (this.#peerEnded) this.#settle();
    else if (this.#owedBytes >= GRANT_BYTES) this.#owner.owesWindow(this);
  }

  #settle(): void {
    if (this.#endSent && this.#peerEnded && this.#received.byteLength === 0) this.#finish();
  }

  #finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#owner.finished(this);
    this.#closed.resolve();
  }
}
