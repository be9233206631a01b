import { WIRE_LIMITS } from "./limits.ts";
import type { ResetCode } from "./types.ts";

/**
 *  0        4      5          9
 * +--------+------+-----------+---------+
 * | length | type | stream id | payload |   integers big-endian
 * +--------+------+-----------+---------+
 *   u32      u8     u32
 *
 * `length` counts type, id and payload: 5..65,536.
 */
export const FRAME_TYPES = { hello: 1, open: 2, data: 3, window: 4, end: 5, reset: 6 } as const;

export type FrameTypeName = keyof typeof FRAME_TYPES;

/** The byte of a reset frame. Numbers are never reused. */
export const RESET_CODES: Readonly<Record<ResetCode, number>> = {
  cancelled: 1,
  refused: 2,
  no_such_port: 3,
  too_many_streams: 4,
  protocol_error: 5,
  internal: 6,
  lane_lost: 7,
};

const CODE_NAMES = new Map(Object.entries(RESET_CODES).map(([name, code]) => [code, name as ResetCode]));

export function resetCodeNamed(code: number): ResetCode | undefined {
  return CODE_NAMES.get(code);
}

/** The length word and the two fields that it counts. */
export const FRAME_PREFIX_BYTES: number = 4 + WIRE_LIMITS.frameHeaderBytes;

/** The largest payload that a frame can carry. */
export const PAYLOAD_BYTES_MAX: number = WIRE_LIMITS.frameBytesMax - WIRE_LIMITS.frameHeaderBytes;

/** Up to this size header and payload travel as one buffer: a copy is cheaper than a second write. */
const JOIN_BYTES_MAX = 4_096;

export function encodeFrame(type: number, id: number, payload: Uint8Array): Uint8Array {
  const frame = new Uint8Array(FRAME_PREFIX_BYTES + payload.length);
  writePrefix(frame, type, id, payload.length);
  frame.set(payload, FRAME_PREFIX_BYTES);
  return frame;
}

/** Hands a frame to `write` in one or two buffers. Returns what the last write said. */
export function writeFrame(
  write: (chunk: Uint8Array) => boolean,
  type: number,
  id: number,
  payload: Uint8Array,
): boolean {
  if (payload.length <= JOIN_BYTES_MAX) return write(encodeFrame(type, id, payload));
  const prefix = new Uint8Array(FRAME_PREFIX_BYTES);
  writePrefix(prefix, type, id, payload.length);
  write(prefix);
  return write(payload);
}

function writePrefix(target: Uint8Array, type: number, id: number, payloadBytes: number): void {
  putU32(target, 0, WIRE_LIMITS.frameHeaderBytes + payloadBytes);
  target[4] = type;
  putU32(target, 5, id);
}

/** Without a DataView: these run once a frame. */
export function getU32(bytes: Uint8Array, at: number): number {
  const high = ((bytes[at] ?? 0) << 24) | ((bytes[at + 1] ?? 0) << 16);
  return (high | ((bytes[at + 2] ?? 0) << 8) | (bytes[at + 3] ?? 0)) >>> 0;
}

export function putU32(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}
