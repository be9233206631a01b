import { idKeyOf, kindOf, NOTIFICATIONS, notificationText } from "@capsem/mcp-protocol";
import {
  type Client,
  type Conversation,
  type LargeMessage,
  type Origin,
  type Rail,
  wholeText,
} from "../conversation.ts";
import type { ByteBudget } from "./byte-budget.ts";
import type { HttpExchange } from "./http-exchange.ts";
import type { HttpVisit } from "./http-visit.ts";
import type { DownLimits } from "./limits.ts";
import { ResumableStream } from "./resumable-stream.ts";

export interface HttpSessionOptions {
  readonly id: string;
  readonly taintKey: string;
  readonly rail: Rail;
  /** What its streams keep for a client that comes back, of what all of a VM do. */
  readonly kept: ByteBudget;
  readonly limits: DownLimits;
}

/** A client of before 2026-07-28, from its `initialize` to its DELETE, or until nobody has used it for long. */
export class HttpSession implements Client {
  readonly transport = "http";
  readonly protocolHint = null;
  readonly id: string;
  readonly taintKey: string;
  readonly gone: AbortSignal;
  /** When it was last used, on the caller's clock. */
  usedMs = 0;

  readonly #gone = new AbortController();
  readonly #conversation: Conversation;
  /** By the key of its id: what each request of it is answered by. */
  readonly #exchanges = new Map<string, HttpExchange>();
  /** By their names: those that a client may go on with. */
  readonly #streams = new Map<string, ResumableStream>();
  readonly #kept: ByteBudget;
  readonly #limits: DownLimits;
  #opened = 0;
  /** Of its GET: what belongs to no request. */
  #standing: ResumableStream | undefined;

  constructor({ id, taintKey, rail, kept, limits }: HttpSessionOptions) {
    this.id = id;
    this.taintKey = taintKey;
    this.#kept = kept;
    this.#limits = limits;
    this.gone = this.#gone.signal;
    this.#conversation = rail.open(this);
  }

  get isIdle(): boolean {
    return this.#exchanges.size === 0 && this.#standing?.isLive !== true;
  }

  get hasStanding(): boolean {
    return this.#standing?.isLive === true;
  }

  /** A client that knows no event to go on behind hears what comes from now on. */
  stand(visit: HttpVisit): ResumableStream {
    this.#standing ??= this.#open("s", () => undefined);
    this.#standing.attach(visit, this.headers);
    return this.#standing;
  }

  /** The event stream of a request. `onLost`: it was cut before the answer, and nobody came back. */
  openStream(visit: HttpVisit, onLost: () => void): ResumableStream {
    const stream = this.#open("r", onLost);
    stream.attach(visit, this.headers);
    return stream;
  }

  /**
   * Goes on behind an event, with its stream alone. "gone": nothing is kept of that stream. What belonged to no request may
   * then be heard anew; the answer to a request may not.
   */
  resume(lastEventId: string, visit: HttpVisit): "resumed" | "gone" | "stand" {
    const [, name = "", number = ""] = /^([rs][0-9]{1,9})-([0-9]{1,15})$/.exec(lastEventId) ?? [];
    const stream = this.#streams.get(name);
    if (stream === undefined) return name.startsWith("s") ? "stand" : "gone";
    stream.attach(visit, this.headers, Number(number));
    return "resumed";
  }

  get headers(): Readonly<Record<string, string>> {
    return { "Mcp-Session-Id": this.id };
  }

  has(idText: string): boolean {
    return this.#exchanges.has(idKeyOf(idText));
  }

  /** Resolves when nothing more comes of the request. */
  async call(message: string, idText: string, origin: Origin, exchange: HttpExchange): Promise<void> {
    const key = idKeyOf(idText);
    this.#exchanges.set(key, exchange);
    await this.#conversation.receive(message, origin);
    if (this.#exchanges.get(key) === exchange) this.#exchanges.delete(key);
  }

  /** A notification, or an answer to a request of ours. */
  async tell(message: string, origin: Origin): Promise<void> {
    await this.#conversation.receive(message, origin);
  }

  /** The connection of one request is gone, and its answer has nowhere to go. */
  cancel(idText: string, origin: Origin): void {
    this.#exchanges.delete(idKeyOf(idText));
    const params = `{"requestId":${idText},"reason":"the client closed the connection"}`;
    void this.tell(notificationText(NOTIFICATIONS.cancelled, params), origin);
  }

  async send(given: string | LargeMessage, about: string | null): Promise<boolean> {
    if (this.gone.aborted) return false;
    const message = wholeText(given);
    const exchange = about === null ? undefined : this.#exchanges.get(idKeyOf(about));
    if (exchange !== undefined && (await exchange.send(message))) return true;
    const kind = kindOf(message);
    const standing = this.#standing;
    // An answer belongs to its request alone.
    if (kind === "result" || kind === "error" || standing === undefined) return false;
    // A question is not kept for somebody who may never come.
    return (kind !== "request" || standing.isLive) && (await standing.send(message));
  }

  close(): void {
    if (this.gone.aborted) return;
    this.#gone.abort();
    this.#conversation.close();
    for (const exchange of this.#exchanges.values()) exchange.finish();
    this.#exchanges.clear();
    for (const stream of [...this.#streams.values()]) stream.close();
  }

  #open(kind: "r" | "s", onLost: () => void): ResumableStream {
    this.#opened += 1;
    const name = `${kind}${this.#opened}`;
    const stream = new ResumableStream({
      ...{ name, kept: this.#kept, limits: this.#limits, onLost },
      onOver: () => {
        this.#streams.delete(name);
        if (this.#standing === stream) this.#standing = undefined;
      },
    });
    this.#streams.set(name, stream);
    return stream;
  }
}
