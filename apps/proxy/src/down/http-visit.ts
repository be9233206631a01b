import type { IncomingMessage, ServerResponse } from "node:http";
import { StreamDuplex } from "./stream-duplex.ts";

/**
 * One request and the way back to who made it. It is over when its answer has left, or when its connection is gone: Node says
 * the latter only to the first of several requests that wait on one connection.
 */
export class HttpVisit {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Of the connection, as the guest claims it. */
  readonly processName: string | null;
  readonly #listeners = new Set<() => void>();
  #isOver = false;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.request = request;
    this.response = response;
    const socket: unknown = request.socket;
    const connection = socket instanceof StreamDuplex ? socket : undefined;
    this.processName = connection?.processName ?? null;
    connection?.requestBegan();
    const over = () => {
      connection?.off("close", over);
      if (this.#isOver) return;
      this.#isOver = true;
      connection?.requestEnded();
      for (const listener of this.#listeners) listener();
      this.#listeners.clear();
    };
    response.once("close", over);
    connection?.once("close", over);
    if (connection?.destroyed === true) over();
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Whether the whole answer has left. */
  get isAnswered(): boolean {
    return this.response.writableFinished;
  }

  /** Called once; at once where it is over. Returns how to take it back. */
  onOver(listener: () => void): () => void {
    if (this.#isOver) listener();
    else this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
