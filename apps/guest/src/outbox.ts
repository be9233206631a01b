import { type Deferred, defer, Failure, messageOf } from "@capsem/base";
import type { GuestControlPort, GuestMessage } from "@capsem/wire";
import { GUEST_LIMITS } from "./limits.ts";
import type { Log } from "./log.ts";
import { messageBytes } from "./message-size.ts";

/**
 * What goes to the host on the control stream, one message at a time, pongs before all others. Messages
 * outlive no stream but one kind: the end of a job that no stream could carry is told to the next.
 */
export class Outbox {
  readonly #log: Log;
  #port: GuestControlPort | undefined;
  #queue: GuestMessage[] = [];
  #bytes = 0;
  #isPumping = false;
  /** While the VM is being saved: what came after the answer that said so. */
  #later: GuestMessage[] | undefined;
  #empty: Deferred<void> | undefined;

  constructor(log: Log) {
    this.#log = log;
  }

  connect(port: GuestControlPort, ready: GuestMessage): void {
    const kept = [...this.#queue, ...(this.#later ?? [])].filter(({ name }) => name === "job_done");
    this.#later = undefined;
    this.#port = port;
    this.#queue = [];
    this.#bytes = 0;
    this.put(ready);
    for (const message of kept) this.put(message);
  }

  put(message: GuestMessage): void {
    if (this.#later !== undefined) {
      this.#later.push(message);
      return;
    }
    this.#admit(message, false);
  }

  /** Before everything that waits. */
  putFirst(message: GuestMessage): void {
    this.#admit(message, true);
  }

  /** Resolves when all that was put has left; what is put later waits for `release`. */
  async hold(): Promise<void> {
    this.#later ??= [];
    await this.flushed();
  }

  release(): void {
    const later = this.#later ?? [];
    this.#later = undefined;
    for (const message of later) this.put(message);
  }

  /** Resolves when nothing waits, also where the stream was lost. */
  async flushed(): Promise<void> {
    if (!this.#isPumping) return;
    this.#empty ??= defer();
    await this.#empty.promise;
  }

  #admit(message: GuestMessage, first: boolean): void {
    if (this.#port === undefined && message.name !== "job_done") return;
    this.#bytes += messageBytes(message);
    if (this.#bytes > GUEST_LIMITS.outboxBytesMax) {
      this.#log.error("the host reads no control messages", { waiting: this.#queue.length });
      this.#drop();
      return;
    }
    if (first) this.#queue.unshift(message);
    else this.#queue.push(message);
    void this.#pump();
  }

  async #pump(): Promise<void> {
    if (this.#isPumping) return;
    this.#isPumping = true;
    while (this.#port !== undefined) {
      const message = this.#queue.shift();
      if (message === undefined) break;
      this.#bytes -= messageBytes(message);
      await this.#send(this.#port, message);
    }
    this.#isPumping = false;
    this.#empty?.resolve();
    this.#empty = undefined;
  }

  async #send(port: GuestControlPort, message: GuestMessage): Promise<void> {
    try {
      await port.send(message);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.kind === "bad_message" || error.kind === "too_large") {
        this.#log.error("message not sent", { name: message.name, error: messageOf(error) });
        return;
      }
      if (this.#port === port) this.#port = undefined;
      if (message.name === "job_done") this.#queue.unshift(message);
    }
  }

  /** The host cannot be reached on this stream any more: it starts a new generation when it is there. */
  #drop(): void {
    this.#port?.stream.reset("internal");
    this.#port = undefined;
    this.#queue = this.#queue.filter(({ name }) => name === "job_done").slice(-GUEST_LIMITS.jobsMax);
    this.#bytes = this.#queue.reduce((sum, message) => sum + messageBytes(message), 0);
  }
}
