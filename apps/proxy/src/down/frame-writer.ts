import { type Deferred, defer, Failure } from "@capsem/base";
import { encodeMcpMessage, encodeMcpParts, type MuxStream } from "@capsem/wire";
import type { DownLimits } from "./limits.ts";

/** The direction to a framed client: messages leave in the order of their calls, whole frames of one together. */
export class FrameWriter {
  readonly #stream: MuxStream;
  readonly #limits: DownLimits;
  #unsentBytes = 0;
  #room: Deferred<void> | undefined;

  constructor(stream: MuxStream, limits: DownLimits) {
    this.#stream = stream;
    this.#limits = limits;
  }

  /** False: the stream is over. Throws Failure("too_large"). */
  async write(streamId: number, message: string | readonly Uint8Array[]): Promise<boolean> {
    const head = { streamId, processName: "" };
    const buffers =
      typeof message === "string" ? encodeMcpMessage(head, message) : encodeMcpParts(head, message);
    let bytes = 0;
    for (const buffer of buffers) bytes += buffer.length;
    if (this.#unsentBytes + bytes > this.#limits.unsentBytesMax) {
      // It sends and sends and takes nothing.
      this.#stream.reset("cancelled");
      return false;
    }
    this.#unsentBytes += bytes;
    try {
      // Begun in one turn, so that no other message comes between.
      const [only] = buffers;
      if (only !== undefined && buffers.length === 1) await this.#stream.write(only);
      else await Promise.all(buffers.map((buffer) => this.#stream.write(buffer)));
      return true;
    } catch (thrown) {
      if (thrown instanceof Failure) return false;
      throw thrown;
    } finally {
      this.#unsentBytes -= bytes;
      if (this.#unsentBytes <= this.#limits.unsentBytesHigh) {
        this.#room?.resolve();
        this.#room = undefined;
      }
    }
  }

  /** Resolves when the client takes what it is sent, or is gone; undefined: it does. */
  room(): Promise<void> | undefined {
    if (this.#unsentBytes <= this.#limits.unsentBytesHigh) return undefined;
    this.#room ??= defer();
    return this.#room.promise;
  }
}
