import type { FactCredit, FactToSend } from "@capsem/api";
import { type Deferred, defer, Failure, messageOf, within } from "@capsem/base";
import type { Log } from "@capsem/worker";
import { untilAborted } from "./call/until-aborted.ts";
import { PROXY_LIMITS } from "./limits.ts";

export interface Refusing {
  readonly kind: string;
  readonly message: string;
}

export interface FactsOptions {
  /** Hands one append to the service's channel before it returns; the answer comes later. `bytes`: of the credit. */
  readonly append: (facts: readonly FactToSend[], bytes: number) => Promise<unknown>;
  readonly log: Log;
}

interface Taken {
  readonly fact: FactToSend;
  readonly bytes: number;
}

/** Until so many facts are on the channel. */
interface Waiting {
  readonly count: number;
  readonly done: Deferred<void>;
}

/**
 * What is recorded, on its way to the service. An intent is taken within the credit alone, and waits for no answer: the
 * service takes what it has given credit for. What ends an intent is always sent. Facts of one turn go in one message.
 */
export class Facts {
  readonly #options: FactsOptions;
  #credit: FactCredit = { facts: 0, bytes: 0 };
  #refusing: Refusing | null = null;
  readonly #queue: Taken[] = [];
  #isScheduled = false;
  #timer: NodeJS.Timeout | undefined;
  /** Facts so far, in all: taken, and handed to the channel. */
  #taken = 0;
  #handed = 0;
  readonly #waiting: Waiting[] = [];
  /** Acts that wait until there is room for their intent, the first first. */
  readonly #waitingForRoom: { readonly bytes: number; readonly turn: Deferred<void> }[] = [];
  /** Appends that the service has not answered. */
  #open = 0;

  constructor(options: FactsOptions) {
    this.#options = options;
  }

  grant(add: FactCredit, refusing: Refusing | null): void {
    this.#credit = { facts: this.#credit.facts + add.facts, bytes: this.#credit.bytes + add.bytes };
    this.#refusing = refusing;
    this.#nextTurn();
  }

  /**
   * Undefined: an intent is taken now, or refused now. Else resolves when it is its turn, and whoever waited says so to
   * `takeIntent` before anything else happens. Throws Failure("ledger_away") after `timeoutMs`, and the reason of the signal.
   */
  room(bytes: number, timeoutMs: number, signal: AbortSignal): Promise<void> | undefined {
    if (this.#refusing !== null || (this.#waitingForRoom.length === 0 && this.#fits(bytes))) return undefined;
    return this.#waitForRoom(bytes, timeoutMs, signal);
  }

  async #waitForRoom(bytes: number, timeoutMs: number, signal: AbortSignal): Promise<void> {
    const { roomWaitMs } = PROXY_LIMITS;
    const waiting = { bytes, turn: defer<void>() };
    this.#waitingForRoom.push(waiting);
    try {
      await within(waiting.turn.promise, Math.min(timeoutMs, roomWaitMs), noRoom, signal);
      // A list that is known already takes no room: then it is the next one's.
      setImmediate(() => this.#nextTurn());
    } catch (thrown) {
      const at = this.#waitingForRoom.indexOf(waiting);
      if (at >= 0) this.#waitingForRoom.splice(at, 1);
      // It was the one that the others waited for.
      this.#nextTurn();
      throw signal.aborted ? signal.reason : thrown;
    }
  }

  /** One at a time: the next one's comes when this one's intent is taken. */
  #nextTurn(): void {
    if (this.#refusing !== null) {
      // Each of them is told so.
      for (const { turn } of this.#waitingForRoom.splice(0)) turn.resolve();
      return;
    }
    const [next] = this.#waitingForRoom;
    if (next === undefined || !this.#fits(next.bytes)) return;
    this.#waitingForRoom.shift();
    next.turn.resolve();
  }

  #fits(bytes: number): boolean {
    const { factBytes, roomBytesMax } = PROXY_LIMITS;
    return this.#credit.facts >= 1 && this.#credit.bytes >= Math.min(bytes + factBytes, roomBytesMax);
  }

  /**
   * Throws Failure when it cannot be recorded: then nothing of it is done. `bytes` are those of its payload. `hasWaited`:
   * for its turn, which is its room. `isEarly`: its act has to wait for a place, and until then the intent
   * waits for company as ends do. Returns its place, for `sent`.
   */
  takeIntent(fact: FactToSend, bytes: number, hasWaited = false, isEarly = false): number {
    if (this.#refusing !== null) throw new Failure(this.#refusing.kind, this.#refusing.message);
    if (!hasWaited && !this.#fits(bytes)) throw noRoom();
    this.#push(fact, bytes);
    if (isEarly) this.#flushLater();
    else this.#flushSoon();
    const place = this.#taken;
    if (this.#waitingForRoom.length > 0) this.#nextTurn();
    return place;
  }

  /** Of what was begun already: it is sent whatever the credit is. */
  takeEnd(fact: FactToSend, bytes: number): void {
    this.#push(fact, bytes);
    this.#flushLater();
  }

  #flushLater(): void {
    if (!this.#isScheduled) this.#timer ??= setTimeout(() => this.flush(), PROXY_LIMITS.endsWaitMs);
  }

  /**
   * Undefined: what was taken up to this place is on the channel. Else resolves when it is: what is done after it comes
   * after it. Throws the reason of the signal: the service may be slow to answer.
   */
  sent(place: number, signal: AbortSignal): Promise<void> | undefined {
    if (place <= this.#handed) return undefined;
    this.#flushSoon();
    const last = this.#waiting.at(-1);
    if (last !== undefined && last.count >= place) return untilAborted(last.done.promise, signal);
    const waiting = { count: place, done: defer<void>() };
    this.#waiting.push(waiting);
    return untilAborted(waiting.done.promise, signal);
  }

  /** What waits leaves now, or as soon as the service has answered to some of what has left before. */
  flush(): void {
    this.#isScheduled = false;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    while (this.#queue.length > 0 && this.#open < PROXY_LIMITS.appendsOpenMax) {
      const taken = this.#next();
      this.#handed += taken.length;
      void this.#append(taken);
    }
    while ((this.#waiting[0]?.count ?? Number.POSITIVE_INFINITY) <= this.#handed) {
      this.#waiting.shift()?.done.resolve();
    }
  }

  /** As many as fit one message. */
  #next(): Taken[] {
    let count = 0;
    let bytes = 0;
    for (const taken of this.#queue) {
      bytes += taken.bytes;
      if (count > 0 && bytes > PROXY_LIMITS.appendBytesMax) break;
      count += 1;
    }
    return this.#queue.splice(0, count);
  }

  async #append(taken: readonly Taken[]): Promise<void> {
    this.#open += 1;
    let bytes = 0;
    for (const each of taken) bytes += each.bytes;
    try {
      await this.#options.append(
        taken.map(({ fact }) => fact),
        bytes,
      );
    } catch (thrown) {
      // Whoever cannot take them says so by its next grant; until then nothing more is begun.
      this.#refusing = {
        kind: "ledger_away",
        message: "Cannot record the act: the service does not take it",
      };
      this.#options.log("error", "facts are not recorded", {
        facts: taken.length,
        cause: messageOf(thrown),
      });
      this.#nextTurn();
    }
    this.#open -= 1;
    if (this.#queue.length > 0) this.flush();
  }

  #push(fact: FactToSend, payloadBytes: number): void {
    const bytes = payloadBytes + PROXY_LIMITS.factBytes;
    this.#credit = { facts: this.#credit.facts - 1, bytes: this.#credit.bytes - bytes };
    this.#queue.push({ fact, bytes });
    this.#taken += 1;
  }

  /** At the end of this turn: what else comes in it goes along. */
  #flushSoon(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    void TURN.then(() => {
      if (this.#isScheduled) this.flush();
    });
  }
}

/** A microtask costs less by a promise: nobody follows where it came from. */
const TURN = Promise.resolve();

function noRoom(): Failure {
  return new Failure("ledger_away", "Cannot record the act: the ledger has not made room for more", {
    retryable: true,
  });
}
