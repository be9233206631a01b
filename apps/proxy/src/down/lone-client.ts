import { type Client, type Conversation, type LargeMessage, type Rail, wholeText } from "../conversation.ts";
import type { HttpExchange } from "./http-exchange.ts";

/** One request over HTTP without a session: of 2026-07-28, or of a program that knows no more than it must. */
export class LoneClient implements Client {
  readonly transport = "http";
  /** All of a VM share it: without a session nobody tells them apart. */
  readonly taintKey = "http";
  readonly protocolHint: string;
  readonly paramHeaders?: ReadonlyMap<string, string>;
  readonly gone: AbortSignal;
  readonly conversation: Conversation;

  readonly #gone = new AbortController();
  readonly #exchange: HttpExchange | undefined;

  /** `paramHeaders` of a revision that has them. */
  constructor(
    rail: Rail,
    revision: string,
    exchange: HttpExchange | undefined,
    paramHeaders?: ReadonlyMap<string, string>,
  ) {
    this.protocolHint = revision;
    if (paramHeaders !== undefined) this.paramHeaders = paramHeaders;
    this.gone = this.#gone.signal;
    this.#exchange = exchange;
    this.conversation = rail.open(this);
  }

  async send(message: string | LargeMessage, about: string | null): Promise<boolean> {
    // What belongs to no request has no way to a client that only waits for its answer.
    if (about === null || this.#exchange === undefined || this.gone.aborted) return false;
    return await this.#exchange.send(wholeText(message));
  }

  close(): void {
    if (this.gone.aborted) return;
    this.#gone.abort();
    this.conversation.close();
  }
}
