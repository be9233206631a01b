import type { ByteBudget } from "./byte-budget.ts";
import { type AnswerStream, EventStream } from "./event-stream.ts";
import type { HttpVisit } from "./http-visit.ts";
import type { DownLimits } from "./limits.ts";

export interface ResumableOptions {
  /** Its own within a session: the first part of the ids of its events. */
  readonly name: string;
  /** What all streams of a VM keep together. */
  readonly kept: ByteBudget;
  readonly limits: DownLimits;
  /** Nothing is left to come back for: all has left, or nobody came in time. */
  readonly onOver: () => void;
  /** The latter, and it had not ended. */
  readonly onLost: () => void;
}

interface Event {
  readonly number: number;
  readonly message: string;
}

/**
 * An event stream of a session, which outlives its connection for a while: a client that lost it comes back for what it
 * has not got (2025-11-25, "Resumability and Redelivery"). The last events are kept, the oldest go first.
 */
export class ResumableStream implements AnswerStream {
  readonly #options: ResumableOptions;
  readonly #events: Event[] = [];
  /** The connection that it has now. */
  #live: EventStream | undefined;
  #last = 0;
  #heldChars = 0;
  /** An event that found no room: who comes back would miss it. */
  #isCut = false;
  /** Its client knows where to go on. */
  #hasId = false;
  #isEnded = false;
  #isOver = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ResumableOptions) {
    this.#options = options;
  }

  get isLive(): boolean {
    return this.#live !== undefined;
  }

  /** Goes on there, behind the event of that number; without one with what comes from now on. */
  attach(visit: HttpVisit, headers: Readonly<Record<string, string>>, behind: number = this.#last): void {
    clearTimeout(this.#timer);
    const before = this.#live;
    const live = new EventStream(visit, headers, this.#options.limits);
    this.#live = live;
    // The client knows sooner than we that it lost a connection.
    before?.end();
    for (const { number, message } of this.#events) {
      if (number > behind) void live.send(message, this.#idOf(number));
    }
    if (this.#isEnded) live.end();
    visit.onOver(() => this.#parted(live, visit.isAnswered));
  }

  /** An event without data: from then on a client can come back, and knows after which time. */
  prime(): void {
    this.#hasId = true;
    this.#live?.prime(this.#idOf(this.#last), this.#options.limits.resumeRetryMs);
  }

  /** True also where it is kept for a client that may come back. */
  async send(message: string): Promise<boolean> {
    if (this.#isOver || this.#isEnded) return false;
    this.#last += 1;
    this.#hasId = true;
    const number = this.#last;
    this.#keep({ number, message });
    const live = this.#live;
    if (live === undefined) {
      if (this.#isCut) this.#giveUp();
      return !this.#isCut;
    }
    return (await live.send(message, this.#idOf(number))) || (!this.#isOver && !this.#isCut);
  }

  comment(): void {
    this.#live?.comment();
  }

  end(): void {
    this.#isEnded = true;
    this.#live?.end();
  }

  /** Its session is over. */
  close(): void {
    this.#live?.end();
    this.#over();
  }

  #idOf(number: number): string {
    return `${this.#options.name}-${number}`;
  }

  #keep(event: Event): void {
    const { limits, kept } = this.#options;
    const chars = event.message.length;
    if (this.#isCut) return;
    while (
      this.#events.length >= limits.resumeEventsMax ||
      !kept.change(this.#heldChars, this.#heldChars + chars)
    ) {
      const oldest = this.#events.shift();
      if (oldest === undefined) {
        this.#isCut = true;
        return;
      }
      kept.change(this.#heldChars, this.#heldChars - oldest.message.length);
      this.#heldChars -= oldest.message.length;
    }
    this.#heldChars += chars;
    this.#events.push(event);
  }

  #parted(live: EventStream, isAnswered: boolean): void {
    if (this.#live !== live) return;
    this.#live = undefined;
    if (this.#isOver) return;
    if (this.#isEnded && isAnswered) this.#over();
    else if (this.#isCut || !this.#hasId) this.#giveUp();
    else this.#timer = setTimeout(() => this.#giveUp(), this.#options.limits.resumeMs);
  }

  #giveUp(): void {
    if (this.#isOver) return;
    this.#over();
    if (!this.#isEnded) this.#options.onLost();
  }

  #over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#options.kept.change(this.#heldChars, 0);
    this.#heldChars = 0;
    this.#events.length = 0;
    this.#options.onOver();
  }
}
