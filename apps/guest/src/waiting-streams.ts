import type { MuxStream } from "@capsem/wire";
import { GUEST_LIMITS } from "./limits.ts";

/**
 * Streams that came before the control message that names them: the two ride on different lanes. Each is
 * refused when nobody asks for it in time. One that was reset meanwhile is still given out, so that whoever
 * asks learns it at once.
 */
export class WaitingStreams {
  readonly #timeoutMs: number;
  readonly #waiting = new Map<string, { stream: MuxStream; timer: NodeJS.Timeout; isOver: boolean }>();

  constructor(timeoutMs: number = GUEST_LIMITS.rendezvousTimeoutMs) {
    this.#timeoutMs = timeoutMs;
  }

  put(stream: MuxStream): void {
    if (this.#waiting.get(stream.tag)?.isOver === true) this.take(stream.tag);
    if (this.#waiting.size >= GUEST_LIMITS.rendezvousWaitingMax) this.#forgetOver();
    if (this.#waiting.has(stream.tag) || this.#waiting.size >= GUEST_LIMITS.rendezvousWaitingMax) {
      stream.reset("refused");
      return;
    }
    const timer = setTimeout(() => this.take(stream.tag)?.reset("refused"), this.#timeoutMs);
    const entry = { stream, timer, isOver: false };
    this.#waiting.set(stream.tag, entry);
    stream.closed.then(() => {
      entry.isOver = true;
    });
  }

  take(tag: string): MuxStream | undefined {
    const found = this.#waiting.get(tag);
    if (found === undefined) return undefined;
    this.#waiting.delete(tag);
    clearTimeout(found.timer);
    return found.stream;
  }

  /** The oldest that is over leaves its place to one that lives. */
  #forgetOver(): void {
    for (const [tag, { isOver }] of this.#waiting) {
      if (!isOver) continue;
      this.take(tag);
      return;
    }
  }
}
