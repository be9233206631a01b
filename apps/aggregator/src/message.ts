import { Failure, writeU32 } from "@capsem/base";
import { MCP_LIMITS, RECORD_TYPES, type RecordKind } from "@capsem/mcp-protocol";

/**
 * A message of a server: text, or UTF-8 that is too large to be made into text without need, and back: new memory costs
 * more than all else that is done with such an answer.
 */
export type Message = string | Uint8Array;

export const LARGE_BYTES_MIN = 65_536;

/** `bytes` is what came, whole. */
export function messageOf(bytes: Uint8Array): Message {
  return bytes.length >= LARGE_BYTES_MIN ? withoutMark(bytes) : textOf(withoutMark(bytes));
}

export function textOf(message: Message): string {
  if (typeof message === "string") return message;
  return bufferOf(message).toString("utf8");
}

/** One character a byte: what is JSON's own stands where it does in the bytes, so that spans can be found in it. */
export function byteText(bytes: Uint8Array): string {
  return bufferOf(bytes).toString("latin1");
}

/** As `encodeRecord` has it, in two parts, so that the large one is not copied. */
export function recordParts(kind: RecordKind, body: Uint8Array): [header: Uint8Array, body: Uint8Array] {
  const { recordBytesMax } = MCP_LIMITS;
  if (body.length > recordBytesMax) {
    throw new Failure("too_large", `Cannot carry record: ${body.length} bytes, more than ${recordBytesMax}`);
  }
  const header = new Uint8Array(5);
  header[0] = RECORD_TYPES[kind];
  writeU32(header, 1, body.length);
  return [header, body];
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}

/** The byte order mark, which some servers begin with. */
export function withoutMark(bytes: Uint8Array): Uint8Array {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes;
}
