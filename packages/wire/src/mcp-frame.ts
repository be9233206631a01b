import { concat, Failure, utf8 } from "@capsem/base";
import { getU32, putU32 } from "./frame.ts";
import { MCP_FRAME_LIMITS } from "./mcp-frame-limits.ts";
import { cleanProcessName } from "./process-name.ts";

/**
 *  0        4      6   7   8         12      14      16          20
 * +--------+------+---+---+---------+-------+-------+-----------+------------+-----------+
 * | length | 4D43 | v | h |stream id| flags | nameL | payload L | name UTF-8 | JSON-RPC  |
 * +--------+------+---+---+---------+-------+-------+-----------+------------+-----------+
 *   u32      u16   u8  u8   u32       u16     u16     u32            integers big-endian
 *
 * `length` counts everything behind itself: 16..1,052,672, and is 16 + nameL + payload L. v = 1, h = 16. A length of
 * zero, alone, ends the session.
 */
export const MCP_FRAME_MAGIC = 0x4d43;
export const MCP_FRAME_VERSION = 1;
export const MCP_FRAME_FLAGS = { notification: 1, more: 2 } as const;
/** The length word and the header behind it. */
export const MCP_FRAME_PREFIX_BYTES: number = 4 + MCP_FRAME_LIMITS.headerBytes;

/** Everything in front of name and payload, checked. */
export interface McpFrameHeader {
  /** 0 of a notification and of nothing else. */
  readonly streamId: number;
  readonly isNotification: boolean;
  /** The message goes on in the next frame of the same stream id. */
  readonly hasMore: boolean;
  readonly nameBytes: number;
  readonly payloadBytes: number;
}

/** One JSON-RPC message with what its frames say of it. */
export interface McpMessage {
  readonly streamId: number;
  readonly isNotification: boolean;
  /** As the guest claims it, cleaned; empty: it says nothing. */
  readonly processName: string;
  readonly text: string;
}

/** What is wrong with a frame. `streamId` is what its header says, where it could be read: the answer goes there. */
export class McpFrameFault extends Failure<"bad_frame"> {
  readonly streamId: number;

  constructor(reason: string, streamId: number) {
    super("bad_frame", `Cannot read frame: ${reason}`);
    this.streamId = streamId;
  }
}

/**
 * Reads a header at `at`, of which all bytes must be there. The length word is looked at before anything else. Throws
 * McpFrameFault.
 */
export function readMcpFrameHeader(bytes: Uint8Array, at: number): McpFrameHeader {
  const streamId = getU32(bytes, at + 8);
  const fault = (reason: string) => new McpFrameFault(reason, streamId);
  const length = checkMcpFrameLength(getU32(bytes, at));
  const magic = getU16(bytes, at + 4);
  if (magic !== MCP_FRAME_MAGIC) throw new McpFrameFault(`its magic is ${hex(magic)}`, 0);
  if (bytes[at + 6] !== MCP_FRAME_VERSION) throw fault(`it has version ${bytes[at + 6]}`);
  if (bytes[at + 7] !== MCP_FRAME_LIMITS.headerBytes) throw fault(`its header has ${bytes[at + 7]} bytes`);
  const flags = getU16(bytes, at + 12);
  if ((flags & ~(MCP_FRAME_FLAGS.notification | MCP_FRAME_FLAGS.more)) !== 0) {
    throw fault(`it has the flags ${hex(flags)}`);
  }
  const nameBytes = getU16(bytes, at + 14);
  const payloadBytes = getU32(bytes, at + 16);
  if (nameBytes > MCP_FRAME_LIMITS.nameBytesMax) throw fault(`its name has ${nameBytes} bytes`);
  if (MCP_FRAME_LIMITS.headerBytes + nameBytes + payloadBytes !== length) {
    throw fault(`its length is ${length}, with a name of ${nameBytes} and a payload of ${payloadBytes}`);
  }
  const isNotification = (flags & MCP_FRAME_FLAGS.notification) !== 0;
  if (isNotification !== (streamId === 0)) {
    throw fault(isNotification ? `a notification has stream id ${streamId}` : "a request has stream id 0");
  }
  const hasMore = (flags & MCP_FRAME_FLAGS.more) !== 0;
  return { streamId, isNotification, hasMore, nameBytes, payloadBytes };
}

/** Not of the word that ends a session. Throws McpFrameFault. */
export function checkMcpFrameLength(length: number): number {
  if (length < MCP_FRAME_LIMITS.headerBytes || length > MCP_FRAME_LIMITS.frameBytesMax) {
    throw new McpFrameFault(`its length is ${length}`, 0);
  }
  return length;
}

export interface McpMessageHead {
  /** 0: a notification. */
  readonly streamId: number;
  readonly processName: string;
}

/**
 * A message as the buffers to write, in order: one, or for a long message one frame after the other. Throws
 * Failure("too_large").
 */
export function encodeMcpMessage(head: McpMessageHead, text: string): Uint8Array[] {
  // No UTF-16 unit takes more than three bytes.
  if (text.length * 3 <= COPIED_BYTES_MAX) return [encodeSmallMessage(head, text)];
  const payload = utf8(text);
  if (payload.length > MCP_FRAME_LIMITS.messageBytesMax) {
    throw new Failure("too_large", `Cannot send message: ${payload.length} bytes`);
  }
  const name = nameBytes(head);
  const frames: Uint8Array[] = [];
  let at = 0;
  do {
    const part = payload.subarray(at, at + MCP_FRAME_LIMITS.payloadBytesMax);
    at += part.length;
    frames.push(encodeMcpFrame(head.streamId, at < payload.length, name, part));
  } while (at < payload.length);
  return frames;
}

/** From this size on a payload is not copied behind its header. */
const COPIED_BYTES_MAX = 4_096;

/**
 * The same of a message in UTF-8 that comes in parts. These stay the caller's, and unchanged until they have left. Throws
 * Failure("too_large").
 */
export function encodeMcpParts(head: McpMessageHead, parts: readonly Uint8Array[]): Uint8Array[] {
  let left = 0;
  for (const part of parts) left += part.length;
  if (left > MCP_FRAME_LIMITS.messageBytesMax) {
    throw new Failure("too_large", `Cannot send message: ${left} bytes`);
  }
  const name = nameBytes(head);
  if (left <= COPIED_BYTES_MAX) return [encodeMcpFrame(head.streamId, false, name, concat(parts))];
  const buffers: Uint8Array[] = [];
  let room = 0;
  for (const part of parts) {
    for (let at = 0; at < part.length; ) {
      if (room === 0) {
        room = Math.min(left, MCP_FRAME_LIMITS.payloadBytesMax);
        left -= room;
        buffers.push(encodeMcpHead(head.streamId, left > 0, name, room));
      }
      const taken = part.subarray(at, at + room);
      buffers.push(taken);
      at += taken.length;
      room -= taken.length;
    }
  }
  return buffers;
}

/** Its one frame, written in place. */
function encodeSmallMessage(head: McpMessageHead, text: string): Uint8Array {
  const name = nameBytes(head);
  const payloadAt = MCP_FRAME_PREFIX_BYTES + name.length;
  const payloadBytes = Buffer.byteLength(text);
  const frame = Buffer.allocUnsafe(payloadAt + payloadBytes);
  writeMcpHead(frame, head.streamId, false, name, payloadBytes);
  frame.write(text, payloadAt);
  return frame;
}

function nameBytes({ processName }: McpMessageHead): Uint8Array {
  return processName === "" ? NO_BYTES : utf8(cleanProcessName(processName));
}
const NO_BYTES = new Uint8Array(0);

/** The word that ends a session. */
export function encodeMcpEnd(): Uint8Array {
  return new Uint8Array(4);
}

function encodeMcpFrame(
  streamId: number,
  hasMore: boolean,
  name: Uint8Array,
  payload: Uint8Array,
): Uint8Array {
  return concat([encodeMcpHead(streamId, hasMore, name, payload.length), payload]);
}

/** Of a frame all but its payload. */
function encodeMcpHead(
  streamId: number,
  hasMore: boolean,
  name: Uint8Array,
  payloadBytes: number,
): Uint8Array {
  const frame = new Uint8Array(MCP_FRAME_PREFIX_BYTES + name.length);
  writeMcpHead(frame, streamId, hasMore, name, payloadBytes);
  return frame;
}

function writeMcpHead(
  frame: Uint8Array,
  streamId: number,
  hasMore: boolean,
  name: Uint8Array,
  payloadBytes: number,
): void {
  putU32(frame, 0, MCP_FRAME_LIMITS.headerBytes + name.length + payloadBytes);
  putU16(frame, 4, MCP_FRAME_MAGIC);
  frame[6] = MCP_FRAME_VERSION;
  frame[7] = MCP_FRAME_LIMITS.headerBytes;
  putU32(frame, 8, streamId);
  const notification = streamId === 0 ? MCP_FRAME_FLAGS.notification : 0;
  putU16(frame, 12, notification | (hasMore ? MCP_FRAME_FLAGS.more : 0));
  putU16(frame, 14, name.length);
  putU32(frame, 16, payloadBytes);
  frame.set(name, MCP_FRAME_PREFIX_BYTES);
}

function getU16(bytes: Uint8Array, at: number): number {
  return ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
}

function putU16(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 8;
  bytes[at + 1] = value;
}

function hex(value: number): string {
  return value.toString(16).padStart(4, "0");
}
