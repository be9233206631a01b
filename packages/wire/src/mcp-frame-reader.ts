import { textOf } from "@capsem/base";
import { getU32 } from "./frame.ts";
import {
  checkMcpFrameLength,
  MCP_FRAME_PREFIX_BYTES,
  McpFrameFault,
  type McpFrameHeader,
  type McpMessage,
  readMcpFrameHeader,
} from "./mcp-frame.ts";
import { MCP_FRAME_LIMITS } from "./mcp-frame-limits.ts";
import { plainBytes } from "./plain-bytes.ts";
import { cleanProcessName } from "./process-name.ts";
import { ReceiveQueue } from "./receive-queue.ts";

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A message of which frames came and the last one did not. */
interface Begun {
  readonly processName: string;
  readonly parts: ReceiveQueue;
}

/**
 * Cuts a byte stream into MCP messages as they arrive, and joins what was cut. Throws McpFrameFault, and is then of no
 * more use. Room is made for what came, not for what was announced. It knows nothing of which ids may come next.
 */
export class McpFrameReader {
  readonly #held = new ReceiveQueue();
  readonly #begun = new Map<number, Begun>();
  /** Payload of messages that have begun: all together are bounded. */
  #begunBytes = 0;
  /** What must be held before another look is worth it. */
  #needed = 4;
  #hasEnded = false;
  #lastRawName = "";
  #lastName = "";

  /** Whether the word that ends the session came. Nothing may follow it. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Bytes that are kept here. */
  get heldBytes(): number {
    return this.#held.byteLength + this.#begunBytes;
  }

  /** Tells each message that is whole now, in order; those in front of a fault too. */
  push(chunk: Uint8Array, tell: (message: McpMessage) => void): void {
    let bytes = plainBytes(chunk);
    if (this.#held.byteLength > 0) {
      this.#held.push(bytes);
      if (this.#held.byteLength < this.#needed) return;
      bytes = this.#held.takeAll();
    }
    let at = 0;
    while (at < bytes.length) {
      const next = this.#frameAt(bytes, at, tell);
      if (next === undefined) break;
      at = next;
    }
    if (at < bytes.length) this.#held.push(at === 0 ? bytes : bytes.subarray(at));
  }

  /** The stream ended, with the word or without it. Throws within a frame or a message. */
  end(): void {
    if (this.#held.byteLength > 0) throw new McpFrameFault("the stream ended within it", 0);
    const [streamId] = this.#begun.keys();
    if (streamId !== undefined) throw new McpFrameFault("the stream ended within a message", streamId);
  }

  /** The position behind the frame at `at`, or undefined where it is not whole yet. */
  #frameAt(bytes: Uint8Array, at: number, tell: (message: McpMessage) => void): number | undefined {
    if (this.#hasEnded) throw new McpFrameFault("it is behind the end of the session", 0);
    const left = bytes.length - at;
    if (left < 4) return this.#need(4);
    const word = getU32(bytes, at);
    if (word === 0) {
      this.#hasEnded = true;
      return at + 4;
    }
    const length = checkMcpFrameLength(word);
    if (left < MCP_FRAME_PREFIX_BYTES) return this.#need(MCP_FRAME_PREFIX_BYTES);
    const header = readMcpFrameHeader(bytes, at);
    this.#checkRoom(header);
    if (left < 4 + length) return this.#need(4 + length);
    const nameAt = at + MCP_FRAME_PREFIX_BYTES;
    const payloadAt = nameAt + header.nameBytes;
    const end = payloadAt + header.payloadBytes;
    const message = this.#join(header, bytes.subarray(nameAt, payloadAt), bytes.subarray(payloadAt, end));
    if (message !== undefined) tell(message);
    return end;
  }

  #need(bytes: number): undefined {
    this.#needed = bytes;
    return undefined;
  }

  #checkRoom(header: McpFrameHeader): void {
    const { streamId, hasMore, payloadBytes } = header;
    const isBegun = this.#begun.has(streamId);
    if (!hasMore && !isBegun) return;
    if (!isBegun && this.#begun.size >= MCP_FRAME_LIMITS.begunMax) {
      throw new McpFrameFault(`${this.#begun.size} messages have begun`, streamId);
    }
    if (hasMore && payloadBytes === 0)
      throw new McpFrameFault("it promises more and holds nothing", streamId);
    if (this.#begunBytes + payloadBytes > MCP_FRAME_LIMITS.messageBytesMax) {
      throw new McpFrameFault("its message is too long", streamId);
    }
  }

  #join(header: McpFrameHeader, name: Uint8Array, payload: Uint8Array): McpMessage | undefined {
    const { streamId, isNotification } = header;
    const begun = this.#begun.get(streamId);
    if (header.hasMore) {
      const goesOn = begun ?? { processName: this.#nameOf(name), parts: new ReceiveQueue() };
      goesOn.parts.push(payload);
      this.#begun.set(streamId, goesOn);
      this.#begunBytes += payload.length;
      return undefined;
    }
    if (begun === undefined) {
      return { streamId, isNotification, processName: this.#nameOf(name), text: textIn(payload, streamId) };
    }
    this.#begun.delete(streamId);
    this.#begunBytes -= begun.parts.byteLength;
    begun.parts.push(payload);
    return {
      streamId,
      isNotification,
      processName: begun.processName,
      text: textIn(begun.parts.takeAll(), streamId),
    };
  }

  /** Cleaned once for as long as it stays the same, which is for all frames of most streams. */
  #nameOf(bytes: Uint8Array): string {
    if (bytes.length === 0) return "";
    const raw = textOf(bytes);
    if (raw !== this.#lastRawName) {
      this.#lastRawName = raw;
      this.#lastName = cleanProcessName(raw);
    }
    return this.#lastName;
  }
}

function textIn(payload: Uint8Array, streamId: number): string {
  try {
    return strictUtf8.decode(payload);
  } catch {
    throw new McpFrameFault("its payload is not UTF-8", streamId);
  }
}
