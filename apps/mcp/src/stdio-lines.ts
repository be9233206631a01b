import type { Readable } from "node:stream";
import { type Deferred, defer } from "@capsem/base";
import { END_GRACE_MS, LINE_BYTES_MAX } from "./limits.ts";
import type { JSONRPCMessage, Transport } from "./mcp-sdk.ts";
import { checkMessage, type Refusal, refusal } from "./message-check.ts";

const NEWLINE = 10;

/**
 * JSON lines of stdin as messages, answers to stdout. Unlike the SDK's own transport it answers what cannot be a
 * message, and lives on after a line that is too long. It ends once, with the input or a reader that has gone.
 */
export class StdioLines implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: NonNullable<Transport["onmessage"]>;
  readonly #input: Readable;
  readonly #write: (text: string) => Promise<void>;
  readonly #ended: Deferred<void> = defer();
  /** Requests that have no answer yet, by id, with whether their answer needs the gateway. */
  readonly #pending = new Map<string | number, boolean>();
  #parts: Buffer[] = [];
  #bytes = 0;
  #skips = false;
  #inputEnded = false;

  constructor(input: Readable, write: (text: string) => Promise<void>) {
    this.#input = input;
    this.#write = write;
  }

  /** Settles when nothing more is to be served; never rejects. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  async start(): Promise<void> {
    this.#input.on("data", this.#take);
    this.#input.on("end", this.#end);
    this.#input.on("close", this.#end);
    this.#input.on("error", this.#end);
  }

  async send(message: JSONRPCMessage): Promise<void> {
    if (!("method" in message) && message.id !== undefined) this.#pending.delete(message.id);
    try {
      await this.#write(`${JSON.stringify(message)}\n`);
    } catch {
      // The reader has gone, and with it everybody whom this could be told.
      await this.close();
    }
    if (this.#inputEnded) this.#endWhenAnswered();
  }

  async close(): Promise<void> {
    this.#input.off("data", this.#take);
    this.#ended.resolve();
    this.onclose?.();
  }

  readonly #take = (chunk: Buffer): void => {
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
      this.#keep(chunk.subarray(from, at));
      this.#finishLine();
      from = at + 1;
    }
    this.#keep(chunk.subarray(from));
  };

  #keep(part: Buffer): void {
    if (this.#skips || part.length === 0) return;
    this.#bytes += part.length;
    if (this.#bytes <= LINE_BYTES_MAX) this.#parts.push(part);
    else {
      this.#skips = true;
      this.#parts = [];
    }
  }

  #finishLine(): void {
    const line = this.#skips ? null : Buffer.concat(this.#parts);
    this.#parts = [];
    this.#bytes = 0;
    this.#skips = false;
    if (line === null) this.#refuse(refusal("invalid", `a line is over ${LINE_BYTES_MAX} bytes`));
    else this.#deliver(line);
  }

  #deliver(line: Buffer): void {
    const checked = checkMessage(line);
    if (checked === null) return;
    if (checked.kind === "refusal") {
      this.#refuse(checked);
      return;
    }
    const { message } = checked;
    if ("method" in message && "id" in message)
      this.#pending.set(
        message.id,
        message.method === "tools/call" || message.method === "subscriptions/listen",
      );
    if ("method" in message && message.method === "notifications/cancelled") this.#forget(message.params);
    this.onmessage?.(message);
  }

  #forget(params: unknown): void {
    const id = (params as { requestId?: unknown } | undefined)?.requestId;
    if (typeof id === "string" || typeof id === "number") this.#pending.delete(id);
  }

  #refuse({ id, code, message }: Refusal): void {
    const answer = { jsonrpc: "2.0", id, error: { code, message } };
    this.#write(`${JSON.stringify(answer)}\n`).catch(() => this.close());
  }

  readonly #end = (): void => {
    if (this.#inputEnded) return;
    this.#inputEnded = true;
    setTimeout(() => void this.close(), END_GRACE_MS).unref();
    this.#endWhenAnswered();
  };

  /** Calls to the gateway end with their client; what is answered from here alone is still answered. */
  #endWhenAnswered(): void {
    const waits = [...this.#pending.values()].some((needsGateway) => !needsGateway);
    if (!waits) void this.close();
  }
}
