import type { FileWindowResult } from "@capsem/api";
import { concat } from "@capsem/base";
import type { TransportAnswer } from "@capsem/sdk";
import { TEXT_MIRROR_BYTES_MAX } from "./limits.ts";
import { ToolFailure } from "./tool-failure.ts";

export interface WindowRequest {
  readonly offset: number;
  readonly bytesMax: number;
  readonly encoding: "utf8" | "base64" | undefined;
  /** Nobody asked for a size: the window is what a client that shows only text sees whole. */
  readonly fitsText: boolean;
}

/** The bytes of an answer and the file's true size. No more is taken than was asked for. */
export async function readWindow(answer: TransportAnswer, request: WindowRequest): Promise<FileWindowResult> {
  const size = Number(answer.headers["x-capsem-size"] ?? Number.NaN);
  if (!Number.isSafeInteger(size) || size < 0) {
    answer.cancel();
    throw new ToolFailure({
      kind: "internal",
      reason: "Cannot read file: the answer has no size",
      retryable: false,
    });
  }
  const parts: Uint8Array[] = [];
  let left = request.bytesMax;
  for await (const part of answer.body) {
    parts.push(part.subarray(0, left));
    left -= Math.min(left, part.length);
    if (left === 0) break;
  }
  return windowOf(concat(parts), size, request);
}

export function windowOf(bytes: Uint8Array, size: number, request: WindowRequest): FileWindowResult {
  const window = encode(bytes, size, request);
  if (!request.fitsText) return window;
  const textBytes = Buffer.byteLength(JSON.stringify(window));
  if (textBytes <= TEXT_MIRROR_BYTES_MAX) return window;
  // Escapes of control characters make text longer than its bytes.
  const fitting = Math.floor((bytes.length * TEXT_MIRROR_BYTES_MAX * 0.95) / textBytes);
  return windowOf(bytes.subarray(0, fitting), size, request);
}

function encode(bytes: Uint8Array, size: number, { offset, encoding }: WindowRequest): FileWindowResult {
  const of = (how: "utf8" | "base64", taken: Uint8Array, data: string) => ({
    encoding: how,
    data,
    offset,
    bytes: taken.length,
    size,
    truncated: offset + taken.length < size,
  });
  if (encoding !== "base64") {
    const whole = bytes.subarray(0, wholeCharacters(bytes, offset + bytes.length < size));
    const text = decode(whole);
    if (text !== null && (whole.length > 0 || bytes.length === 0)) return of("utf8", whole, text);
    if (encoding === "utf8")
      throw new ToolFailure({
        kind: "invalid_input",
        reason: "Cannot read file as utf8: encoding: its bytes are not text, ask for base64",
        retryable: false,
      });
  }
  return of("base64", bytes, Buffer.from(bytes).toString("base64"));
}

function decode(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** How many bytes end with a whole character: a window may cut the last one, and the next window begins with it. */
function wholeCharacters(bytes: Uint8Array, isCut: boolean): number {
  if (!isCut) return bytes.length;
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) return bytes.length;
    if (byte >= 0xc0) {
      const needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return needed > back ? bytes.length - back : bytes.length;
    }
  }
  return bytes.length;
}
