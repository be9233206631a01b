import type { ServiceEvent } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { FrameSocket } from "../job/frame-socket.ts";
import { EVENT_LIMITS } from "../limits.ts";

/** What one subscriber has not been sent yet. Full, it is emptied, and one `lagged` stands for all that it held. */
export class EventQueue {
  #hello: string | null = null;
  #waiting: string[] = [];
  #waitingChars = 0;
  #missed = 0;
  #lastMissedSeq = 0;
  /** Events before the hello are in the hello. */
  #isStarted = false;
  #isOver = false;
  #wake: (() => void) | null = null;

  start(hello: string): void {
    this.#isStarted = true;
    this.#hello = hello;
    this.#wake?.();
  }

  push(seq: number, text: string): void {
    if (!this.#isStarted || this.#isOver) return;
    const isFull =
      this.#waiting.length >= EVENT_LIMITS.queuedMax ||
      this.#waitingChars + text.length > EVENT_LIMITS.queuedCharsMax;
    if (this.#missed === 0 && !isFull) {
      this.#add(text);
      return;
    }
    this.#missed += 1 + (this.#missed === 0 ? this.#dropEvents() : 0);
    this.#lastMissedSeq = seq;
    this.#wake?.();
  }

  end(): void {
    this.#isOver = true;
    this.#wake?.();
  }

  /** At the client's pace, until the end of the queue. Resolves early when the client is gone. */
  async sendAll(socket: FrameSocket): Promise<void> {
    try {
      for (let text = await this.#next(); text !== null; text = await this.#next()) {
        await socket.sendText(text);
      }
    } catch (thrown) {
      if (!(thrown instanceof Failure) || thrown.kind !== "cancelled") throw thrown;
    }
  }

  async #next(): Promise<string | null> {
    for (;;) {
      const hello = this.#hello;
      this.#hello = null;
      if (hello !== null) return hello;
      const text = this.#waiting.shift();
      if (text !== undefined) {
        this.#waitingChars -= text.length;
        return text;
      }
      if (this.#missed > 0) return this.#lagged();
      if (this.#isOver) return null;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #lagged(): string {
    const lagged: ServiceEvent = { type: "lagged", seq: this.#lastMissedSeq, missed: this.#missed };
    this.#missed = 0;
    return JSON.stringify(lagged);
  }

  #add(text: string): void {
    this.#waiting.push(text);
    this.#waitingChars += text.length;
    this.#wake?.();
  }

  #dropEvents(): number {
    const dropped = this.#waiting.length;
    this.#waiting = [];
    this.#waitingChars = 0;
    return dropped;
  }
}
