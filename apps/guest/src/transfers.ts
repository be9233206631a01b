import { type Deferred, defer, within } from "@capsem/base";
import type { MuxStream } from "@capsem/wire";
import { guestFailure } from "./guest-error.ts";
import { GUEST_LIMITS } from "./limits.ts";
import { WaitingStreams } from "./waiting-streams.ts";

/** How many refused ids are remembered: their streams may still be on the way. */
const REFUSED_MAX = 256;

/** Brings a file request and its stream on port 5009 together, whichever comes first. */
export class Transfers {
  readonly #waiting = new WaitingStreams();
  readonly #expected = new Map<string, Deferred<MuxStream>>();
  readonly #refused = new Set<string>();

  /** A stream that the host opened. */
  offer(stream: MuxStream): void {
    const expected = this.#expected.get(stream.tag);
    if (expected !== undefined) {
      this.#expected.delete(stream.tag);
      expected.resolve(stream);
    } else if (this.#refused.delete(stream.tag)) {
      stream.reset("refused");
    } else {
      this.#waiting.put(stream);
    }
  }

  /** The caller owns the stream. Throws Failure("wrong_state") when none comes in time. */
  async expect(id: string): Promise<MuxStream> {
    const waiting = this.#waiting.take(id);
    if (waiting !== undefined) return waiting;
    const expected = defer<MuxStream>();
    this.#expected.set(id, expected);
    try {
      return await within(expected.promise, GUEST_LIMITS.rendezvousTimeoutMs, () =>
        guestFailure("wrong_state", "Cannot move bytes: the host opened no stream for them"),
      );
    } finally {
      this.#expected.delete(id);
    }
  }

  /** The request failed: its stream is not wanted, now or later. */
  refuse(id: string): void {
    const waiting = this.#waiting.take(id);
    if (waiting !== undefined) {
      waiting.reset("refused");
      return;
    }
    this.#refused.add(id);
    for (const oldest of this.#refused) {
      if (this.#refused.size <= REFUSED_MAX) break;
      this.#refused.delete(oldest);
    }
  }
}
