import { utf8 } from "@capsem/base";
import { encodeFrame, FRAME_TYPES, putU32, RESET_CODES, writeFrame } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";
import type { Stream } from "./mux-stream.ts";
import type { ResetCode, Transport } from "./types.ts";

/** Reset frames that may wait while the transport is blocked. An honest peer causes two a stream at most. */
const RESETS_WAITING_MAX = WIRE_LIMITS.streamsMax * 4;
const EMPTY = new Uint8Array(0);

/**
 * Decides which frame leaves next: resets, opens in the order of their ids, grants, then one data frame of
 * each stream in turn. What waits is bounded by the open streams, whatever the transport does.
 */
export class MuxSender {
  readonly #transport: Transport;
  readonly #write: (chunk: Uint8Array) => boolean;
  #isWritable = true;
  #isSending = false;
  #isOver = false;
  readonly #resets: Uint8Array[] = [];
  readonly #opening = new Set<Stream>();
  readonly #owing = new Set<Stream>();
  /** A ring: the first one sends a frame and goes to the end. */
  readonly #sending = new Set<Stream>();

  constructor(transport: Transport) {
    this.#transport = transport;
    this.#write = (chunk) => transport.write(chunk);
    transport.onDrain(() => {
      this.#isWritable = true;
      this.#send();
    });
  }

  open(stream: Stream): void {
    this.#opening.add(stream);
    this.#send();
  }

  owesWindow(stream: Stream): void {
    this.#owing.add(stream);
    this.#send();
  }

  wantsToSend(stream: Stream): void {
    if (!stream.isReady) return;
    this.#sending.add(stream);
    this.#send();
  }

  /** False when too many wait: the peer causes resets and reads none. */
  reset(id: number, code: ResetCode): boolean {
    if (this.#resets.length >= RESETS_WAITING_MAX) return false;
    this.#resets.push(resetFrame(id, code, ""));
    this.#send();
    return true;
  }

  forget(stream: Stream): void {
    this.#opening.delete(stream);
    this.#owing.delete(stream);
    this.#sending.delete(stream);
  }

  /** The last frame of a mux names the lane itself. It does not wait for its turn. */
  resetLane(code: ResetCode, text: string): void {
    if (!this.#isOver) this.#write(resetFrame(0, code, text));
  }

  stop(): void {
    this.#isOver = true;
    this.#resets.length = 0;
    this.#transport.close();
  }

  /** One frame a step while the transport takes them. */
  #send(): void {
    if (this.#isSending) return;
    this.#isSending = true;
    try {
      while (this.#isWritable && !this.#isOver) {
        const sent = this.#sendReset() ?? this.#sendOpen() ?? this.#sendWindow() ?? this.#sendData();
        if (sent === undefined) return;
        this.#isWritable = sent;
      }
    } finally {
      this.#isSending = false;
    }
  }

  #sendReset(): boolean | undefined {
    const frame = this.#resets.shift();
    return frame === undefined ? undefined : this.#write(frame);
  }

  #sendOpen(): boolean | undefined {
    const stream = first(this.#opening);
    if (stream === undefined) return undefined;
    this.#opening.delete(stream);
    stream.announced = true;
    const tag = utf8(stream.tag);
    const payload = new Uint8Array(2 + tag.length);
    payload[0] = stream.port >>> 8;
    payload[1] = stream.port;
    payload.set(tag, 2);
    return this.#write(encodeFrame(FRAME_TYPES.open, stream.id, payload));
  }

  #sendWindow(): boolean | undefined {
    const stream = first(this.#owing);
    if (stream === undefined) return undefined;
    this.#owing.delete(stream);
    const bytes = stream.takeGrant();
    if (bytes === 0) return true;
    const payload = new Uint8Array(4);
    putU32(payload, 0, bytes);
    return this.#write(encodeFrame(FRAME_TYPES.window, stream.id, payload));
  }

  #sendData(): boolean | undefined {
    const stream = first(this.#sending);
    if (stream === undefined) return undefined;
    this.#sending.delete(stream);
    if (!stream.isReady) return true;
    const payload = stream.takePayload();
    if (payload === undefined) {
      const isWritable = this.#write(encodeFrame(FRAME_TYPES.end, stream.id, EMPTY));
      stream.endWasSent();
      return isWritable;
    }
    if (stream.isReady) this.#sending.add(stream);
    return writeFrame(this.#write, FRAME_TYPES.data, stream.id, payload);
  }
}

function first<T>(set: Set<T>): T | undefined {
  for (const item of set) return item;
  return undefined;
}

function resetFrame(id: number, code: ResetCode, text: string): Uint8Array {
  const words = utf8(text).subarray(0, WIRE_LIMITS.resetTextBytesMax);
  const payload = new Uint8Array(1 + words.length);
  payload[0] = RESET_CODES[code];
  payload.set(words, 1);
  return encodeFrame(FRAME_TYPES.reset, id, payload);
}
