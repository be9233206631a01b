import { type Deferred, defer, Failure, ignore } from "@capsem/base";
import { NOTIFICATIONS } from "@capsem/mcp-protocol";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { rude } from "./failure.ts";

/** Which of a server's own requests can be answered in the course of a call. */
export interface ClientAnswers {
  readonly sampling: boolean;
  readonly elicitation: boolean;
  readonly roots: boolean;
}

export interface CallRequest {
  readonly method: string;
  /** A JSON object. */
  readonly paramsText: string | undefined;
  /** A member of these that is large, and stands behind the others: JSON in UTF-8. */
  readonly argumentsBytes?: Uint8Array | undefined;
  readonly client: ClientAnswers;
  /** From now to the answer, whatever comes before it. */
  readonly timeoutMs: number;
}

/** Where what a server says in the course of a call goes: whole messages. Resolves when one is taken. */
export interface CallSink {
  notification(text: string): Promise<void>;
  request(text: string): Promise<void>;
}

export interface Outcome {
  readonly kind: "result" | "error";
  /** The value of that member, as the server wrote it. */
  readonly text: string;
  /** The same in UTF-8, where it is large: the text is then made of it each time. */
  readonly bytes?: Uint8Array;
}

/**
 * A notification that a server may ask something about. It is a call, whose answer is that the server has asked, or has
 * not for a while.
 */
export function isNews(method: string): boolean {
  return method === NOTIFICATIONS.rootsChanged;
}

/** Messages from streams of other things, which do not wait for a slow reader of this call. */
const OFFERED_MAX = 64;

/** One request on its way to a server, from when it is asked for to its one end. */
export class OpenCall {
  readonly request: CallRequest;
  /** The end. Rejects with a Failure. */
  readonly outcome: Promise<Outcome>;
  /** Aborts when nobody waits for the answer any more; the reason is the failure that the call ends with. */
  readonly signal: AbortSignal;
  /** Ends its HTTP exchange. */
  readonly wire = new AbortController();
  /** What its client called its progress, as JSON; null: it asked for none. */
  tokenText: string | null = null;
  /** Who takes the client's answers to what the server asks in its course. */
  via: { respond(text: string): void; tell(text: string): Promise<void> } | undefined;
  /** Our id of it at the server, and our progress token: digits. */
  idText = "";

  readonly #sink: CallSink;
  readonly #end: Deferred<Outcome> = defer();
  readonly #gone = new AbortController();
  readonly #asked = new Set<string>();
  readonly #caller: AbortSignal;
  readonly #onAbort: () => void;
  readonly #timer: NodeJS.Timeout;
  readonly #startedAt = performance.now();
  #whenCancelled: (() => void) | undefined;
  #bytes = 0;
  #askedCount = 0;
  #offered = 0;
  #taking: Deferred<void> | undefined;
  #quiet: Deferred<void> | undefined;
  #news: string | undefined;
  #isTelling = false;
  #isOver = false;
  #isAnswered = false;

  /** `caller` aborts when whoever asked has gone. */
  constructor(request: CallRequest, sink: CallSink, caller: AbortSignal) {
    this.request = request;
    this.outcome = this.#end.promise;
    ignore(this.outcome);
    this.signal = this.#gone.signal;
    this.#sink = sink;
    this.#caller = caller;
    this.#onAbort = () => this.cancel(new Failure("cancelled", "the call was cancelled"));
    const late = () =>
      this.cancel(
        new Failure("timeout", `it did not answer within ${request.timeoutMs} ms`, { detail: "deadline" }),
      );
    this.#timer = setTimeout(late, request.timeoutMs);
    if (caller.aborted) this.#onAbort();
    else caller.addEventListener("abort", this.#onAbort, { once: true });
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Over by an answer of the server, whatever it says. */
  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  /** Whole milliseconds, at least one. */
  get timeLeftMs(): number {
    return Math.max(1, Math.ceil(this.request.timeoutMs - (performance.now() - this.#startedAt)));
  }

  /**
   * It is about to be sent, or sent again. `whenCancelled` tells the server. Throws what it was cancelled with, where
   * that came while it waited for its place or its session: then nothing is sent.
   */
  begin(idText: string, whenCancelled: () => void): void {
    this.#gone.signal.throwIfAborted();
    this.idText = idText;
    this.#whenCancelled = whenCancelled;
  }

  /** `isElsewhere`: not by its own exchange, which has a moment to end by itself. */
  settle(outcome: Outcome, isElsewhere = false): void {
    if (!this.#close()) return;
    this.#isAnswered = true;
    this.#end.resolve(outcome);
    if (!isElsewhere) return;
    const answered = new Failure("cancelled", "the call is answered");
    setTimeout(() => this.#letGo(answered), UPSTREAM_LIMITS.lingerMs).unref();
  }

  fail(failure: Error): void {
    if (this.#close()) this.#end.reject(failure);
  }

  /** Its answer cannot come any more, and what is under way for it is over. */
  lose(failure: Failure): void {
    if (!this.#close()) return;
    this.#end.reject(failure);
    this.#letGo(failure);
  }

  /** Nobody waits any more. */
  cancel(failure: Failure): void {
    if (!this.#close()) return;
    this.#end.reject(failure);
    this.#gone.abort(failure);
    this.#whenCancelled?.();
  }

  /** Counts what was said in its course. Throws "upstream_failed" beyond the bound. */
  took(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes > UPSTREAM_LIMITS.callBytesMax) throw rude("says too much in the course of one call");
  }

  /** For what came on its own stream, one by one: it goes on when the reader has taken it, or the call is over. */
  async notify(text: string): Promise<void> {
    if (this.#isOver) return;
    const taken = defer<void>();
    this.#taking = taken;
    this.#sink.notification(text).then(taken.resolve, taken.reject);
    await taken.promise;
  }

  /** For what came on a stream that others wait on: dropped when the reader is slow. */
  offer(text: string): void {
    if (this.#isOver || this.#offered >= OFFERED_MAX) return;
    this.#offered += 1;
    ignore(
      this.#sink.notification(text).finally(() => {
        this.#offered -= 1;
      }),
    );
  }

  /** A request of the server, for the client. False: it cannot be asked. */
  ask(idKey: string, text: string): boolean {
    const tooMany = this.#askedCount >= UPSTREAM_LIMITS.askedMax;
    if (this.#isOver || tooMany || this.#asked.has(idKey)) return false;
    this.#askedCount += 1;
    this.#asked.add(idKey);
    ignore(this.#sink.request(text));
    return true;
  }

  /** Whether the server waits for this answer; it does so once. */
  wasAsked(idKey: string): boolean {
    const wasAsked = this.#asked.delete(idKey);
    if (wasAsked && !this.isAsking) this.#quiet?.resolve();
    return wasAsked;
  }

  /** Resolves when the server has asked something, and has an answer to all that it asked. */
  get quiet(): Promise<void> {
    this.#quiet ??= defer();
    return this.#quiet.promise;
  }

  /** Whether the server waits for any. */
  get isAsking(): boolean {
    return this.#asked.size > 0;
  }

  /** What the client says meanwhile: one at a time; of those that come until it has left, the last. */
  tell(text: string): void {
    this.#news = text;
    if (!this.#isTelling) ignore(this.#tellAll());
  }

  async #tellAll(): Promise<void> {
    this.#isTelling = true;
    try {
      for (let text = this.#news; text !== undefined; text = this.#news) {
        this.#news = undefined;
        if (!this.isAsking) return;
        await this.via?.tell(text);
      }
    } finally {
      this.#isTelling = false;
    }
  }

  #close(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#caller.removeEventListener("abort", this.#onAbort);
    this.#taking?.resolve();
    return true;
  }

  #letGo(why: Failure): void {
    this.#gone.abort(why);
    this.wire.abort(why);
  }
}
