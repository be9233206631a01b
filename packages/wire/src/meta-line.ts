import { Failure, textOf, utf8 } from "@capsem/base";
import { MCP_FRAME_LIMITS } from "./mcp-frame-limits.ts";
import { plainBytes } from "./plain-bytes.ts";
import { cleanProcessName } from "./process-name.ts";

/** NUL, then this, then the process name, then a newline: the start of each stream of port 5002. */
const PREFIX = utf8("\0CAPSEM_META:");
const NEWLINE = 0x0a;

export interface MetaLine {
  /** Cleaned. Empty: the guest does not say. */
  readonly processName: string;
  /** Bytes of the line, its newline counted. */
  readonly byteLength: number;
}

export function encodeMetaLine(processName: string): Uint8Array {
  const name = utf8(cleanProcessName(processName));
  const line = new Uint8Array(PREFIX.length + name.length + 1);
  line.set(PREFIX);
  line.set(name, PREFIX.length);
  line[line.length - 1] = NEWLINE;
  return line;
}

/**
 * What a stream starts with, or undefined while more bytes are needed to tell. Throws Failure("bad_message") where it
 * starts with anything else, at the first byte that is wrong, and Failure("too_large") where the line does not end.
 */
export function parseMetaLine(input: Uint8Array): MetaLine | undefined {
  const bytes = plainBytes(input);
  for (let at = 0; at < Math.min(bytes.length, PREFIX.length); at += 1) {
    if (bytes[at] !== PREFIX[at]) {
      throw new Failure("bad_message", "Cannot read stream: it does not start with a metadata line");
    }
  }
  const head = bytes.subarray(0, MCP_FRAME_LIMITS.metaLineBytesMax);
  const end = head.indexOf(NEWLINE, PREFIX.length);
  if (end >= 0) {
    const processName = cleanProcessName(textOf(head.subarray(PREFIX.length, end)));
    return { processName, byteLength: end + 1 };
  }
  if (bytes.length < MCP_FRAME_LIMITS.metaLineBytesMax) return undefined;
  throw new Failure("too_large", "Cannot read stream: its metadata line does not end");
}
