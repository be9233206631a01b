import { type Deferred, defer, Failure, ignore } from "@capsem/base";
import { encodeRecord, type RecordKind, RPC_CODES, readRecords } from "@capsem/mcp-protocol";
import type { MuxStream } from "@capsem/wire";
import { recordParts } from "./message.ts";
import type { CallSink } from "./upstream/open-call.ts";
import type { StartedCall } from "./upstream/upstream.ts";

/**
 * The way of records to the proxy. Before its stream is there they wait: the first one is what makes the call be
 * answered at all, so that a failure before it is the call's own.
 */
export class RecordsOut implements CallSink {
  /** Resolves with the first record. */
  readonly first: Promise<void>;
  readonly #first: Deferred<void> = defer();
  readonly #stream: Deferred<MuxStream> = defer();
  #attached: MuxStream | undefined;

  constructor() {
    this.first = this.#first.promise;
    ignore(this.#stream.promise);
  }

  notification(text: string): Promise<void> {
    return this.write("notification", text);
  }

  request(text: string): Promise<void> {
    return this.write("request", text);
  }

  write(kind: RecordKind, text: string): Promise<void> {
    return this.#send([encodeRecord(kind, text)]);
  }

  /** A record of UTF-8 that is given as it is. */
  writeBytes(kind: RecordKind, bytes: Uint8Array): Promise<void> {
    return this.#send(recordParts(kind, bytes));
  }

  /** In the order of the calls. Resolves when the stream has taken all. */
  async #send(parts: readonly Uint8Array[]): Promise<void> {
    this.#first.resolve();
    const stream = this.#attached ?? (await this.#stream.promise);
    await Promise.all(parts.map((part) => stream.write(part)));
  }

  attach(stream: MuxStream): void {
    this.#attached = stream;
    this.#stream.resolve(stream);
  }

  /** The caller left before there was a stream: what waits for it is let go. */
  detach(): void {
    this.#stream.reject(new Failure("cancelled", "Cannot write a record: the caller has gone"));
  }
}

/** Reads what the client says until the proxy ends its side. Never rejects: a proxy that left has cancelled the call. */
export async function readClient(
  stream: MuxStream,
  call: Pick<StartedCall, "respond" | "notify">,
): Promise<void> {
  try {
    for await (const { kind, text } of readRecords(stream, ["response", "notification"])) {
      if (kind === "response") call.respond(text);
      else call.notify(text);
    }
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    stream.reset("protocol_error");
  }
}

/** The error of a call whose first record had left when it failed. `data.kind` is the kind that it would have had. */
export function failureText(failure: Failure): string {
  const code = failure.kind === "timeout" ? RPC_CODES.timedOut : RPC_CODES.internalError;
  return JSON.stringify({ code, message: failure.message, data: { kind: failure.kind } });
}
