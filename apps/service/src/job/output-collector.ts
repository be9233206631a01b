import { isUtf8 } from "node:buffer";
import type { StreamData } from "@capsem/api";

/** Keeps the first bytes of one output stream and counts all of them. */
export class OutputCollector {
  readonly #bytesMax: number;
  readonly #kept: Uint8Array[] = [];
  #keptBytes = 0;
  seenBytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  add(bytes: Uint8Array): void {
    this.seenBytes += bytes.length;
    const room = this.#bytesMax - this.#keptBytes;
    if (room <= 0) return;
    // A copy: the view would keep the whole frame alive.
    const kept = Uint8Array.prototype.slice.call(bytes, 0, room);
    this.#kept.push(kept);
    this.#keptBytes += kept.length;
  }

  /** The first of them, as far as they were kept. */
  first(bytesMax: number): Uint8Array {
    return Buffer.concat(this.#kept).subarray(0, bytesMax);
  }

  /** `producedBytes` is what the job wrote as its owner counted. */
  data(producedBytes: number): StreamData {
    const whole = Buffer.concat(this.#kept);
    const totalBytes = Math.max(producedBytes, this.seenBytes);
    const truncated = totalBytes > this.#keptBytes;
    const size = truncated ? { total_bytes: totalBytes } : {};
    const text = truncated ? whole.subarray(0, wholeCharacters(whole)) : whole;
    if (isUtf8(text)) return { encoding: "utf8", data: text.toString("utf8"), truncated, ...size };
    return { encoding: "base64", data: whole.toString("base64"), truncated, ...size };
  }
}

/** A cut in the middle of a character must not make text look binary: how long it is without a begun one. */
function wholeCharacters(bytes: Buffer): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}
