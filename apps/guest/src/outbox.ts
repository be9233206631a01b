import { type Deferred, defer, Failure, messageOf } from "@capsem/base";
import { type GuestControlPort, type GuestMessage, UNSTAMPED_US, writeAgentUs } from "@capsem/wire";
import { GUEST_LIMITS } from "./limits.ts";
import type { Log } from "./log.ts";
import { messageBytes } from "./message-size.ts";

type JobEnd = Extract<GuestMessage, { name: "job_done" }>;

interface Waiting {
  readonly message: GuestMessage;
  readonly readUs: number | undefined;
}

/** A job that ran for 71 minutes says how long it took before its end is encoded: nothing else fits. */
const STAMP_MARGIN_US = 60_000_000;

/**
 * What goes to the host on the control stream, one message at a time, pongs before all others. Messages
 * outlive no stream but one kind: the end of a job that no stream could carry is told to the next.
 */
export class Outbox {
  readonly #log: Log;
  readonly #monotonicUs: () => number;
  #port: GuestControlPort | undefined;
  #queue: Waiting[] = [];
  #bytes = 0;
  #isPumping = false;
  /** While the VM is being saved: what came after the answer that said so. */
  #later: Waiting[] | undefined;
  #empty: Deferred<void> | undefined;

  constructor(log: Log, monotonicUs: () => number) {
    this.#log = log;
    this.#monotonicUs = monotonicUs;
  }

  connect(port: GuestControlPort, ready: GuestMessage): void {
    const kept = [...this.#queue, ...(this.#later ?? [])].filter(isEnd);
    this.#later = undefined;
    this.#port = port;
    this.#queue = [];
    this.#bytes = 0;
    this.put(ready);
    for (const { message, readUs } of kept) this.put(message, readUs);
  }

  /** `readUs`: when the request that it answers was read; the end of a job says how long ago that is. */
  put(message: GuestMessage, readUs?: number): void {
    const waiting = { message, readUs };
    if (this.#later === undefined) this.#admit(waiting, false);
    else this.#later.push(waiting);
  }

  /** Before everything that waits. */
  putFirst(message: GuestMessage): void {
    this.#admit({ message, readUs: undefined }, true);
  }

  /** Resolves when all that was put has left; what is put later waits for `release`. */
  async hold(): Promise<void> {
    this.#later ??= [];
    await this.flushed();
  }

  release(): void {
    const later = this.#later ?? [];
    this.#later = undefined;
    for (const { message, readUs } of later) this.put(message, readUs);
  }

  /** Resolves when nothing waits, also where the stream was lost. */
  async flushed(): Promise<void> {
    if (!this.#isPumping) return;
    this.#empty ??= defer();
    await this.#empty.promise;
  }

  #admit(waiting: Waiting, first: boolean): void {
    const { message } = waiting;
    if (this.#port === undefined && message.name !== "job_done") return;
    this.#bytes += messageBytes(message);
    if (this.#bytes > GUEST_LIMITS.outboxBytesMax) {
      this.#log.error("the host reads no control messages", { waiting: this.#queue.length });
      this.#drop();
      return;
    }
    if (first) this.#queue.unshift(waiting);
    else this.#queue.push(waiting);
    void this.#pump();
  }

  async #pump(): Promise<void> {
    if (this.#isPumping) return;
    this.#isPumping = true;
    while (this.#port !== undefined) {
      const waiting = this.#queue.shift();
      if (waiting === undefined) break;
      this.#bytes -= messageBytes(waiting.message);
      await this.#send(this.#port, waiting);
    }
    this.#isPumping = false;
    this.#empty?.resolve();
    this.#empty = undefined;
  }

  async #send(port: GuestControlPort, waiting: Waiting): Promise<void> {
    const { message, readUs } = waiting;
    try {
      if (message.name === "job_done" && readUs !== undefined) await this.#sendEnd(port, message, readUs);
      else await port.send(message);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.kind === "bad_message" || error.kind === "too_large") {
        this.#log.error("message not sent", { name: message.name, error: messageOf(error) });
        return;
      }
      if (this.#port === port) this.#port = undefined;
      if (isEnd(waiting)) this.#keep(waiting);
    }
  }

  /** It was first; a stream that is there already is told `ready` before it. */
  #keep(waiting: Waiting): void {
    this.#bytes += messageBytes(waiting.message);
    if (this.#port === undefined) this.#queue.unshift(waiting);
    else this.#queue.push(waiting);
  }

  /** Its time is taken when all else of it is done: what is left is the writing. */
  #sendEnd(port: GuestControlPort, message: JobEnd, readUs: number): Promise<void> {
    const isLong = message.body.agent_us >= UNSTAMPED_US - STAMP_MARGIN_US;
    if (isLong) return port.send(message);
    const unstamped: JobEnd = { ...message, body: { ...message.body, agent_us: UNSTAMPED_US } };
    return port.send(unstamped, (encoded) => {
      // In the message too, which the journal has: who asks again is told the same.
      message.body.agent_us = writeAgentUs(encoded, this.#monotonicUs() - readUs);
    });
  }

  /** The host cannot be reached on this stream any more: it starts a new generation when it is there. */
  #drop(): void {
    this.#port?.stream.reset("internal");
    this.#port = undefined;
    this.#queue = this.#queue.filter(isEnd).slice(-GUEST_LIMITS.jobsMax);
    this.#bytes = this.#queue.reduce((sum, { message }) => sum + messageBytes(message), 0);
  }
}

function isEnd({ message }: Waiting): boolean {
  return message.name === "job_done";
}
