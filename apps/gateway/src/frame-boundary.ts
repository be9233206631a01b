/**
 * Follows the frames of a WebSocket in one direction (RFC 6455, section 5.2) without reading their content, so that a
 * frame of ours can be put between two.
 *
 *   [fin rsv opcode][mask length7] [length16 | length64]? [mask key 4]? [payload]
 */
export class FrameBoundary {
  #header = Buffer.alloc(HEADER_BYTES_MAX);
  #headerBytes = 0;
  #payloadLeft = 0;

  /** Whether a frame could begin here. */
  get isBetween(): boolean {
    return this.#headerBytes === 0 && this.#payloadLeft === 0;
  }

  /** Follows a chunk; with `stops` only to the first end of a frame in it. Returns how much it followed. */
  follow(chunk: Uint8Array, stops: boolean): number {
    let at = 0;
    while (at < chunk.length) {
      if (this.#payloadLeft > 0) {
        const taken = Math.min(this.#payloadLeft, chunk.length - at);
        this.#payloadLeft -= taken;
        at += taken;
      } else {
        this.#header[this.#headerBytes++] = chunk[at++] ?? 0;
        this.#readHeader();
      }
      if (stops && this.isBetween) return at;
    }
    return at;
  }

  #readHeader(): void {
    if (this.#headerBytes < 2) return;
    const second = this.#header.readUInt8(1);
    const length7 = second & 0x7f;
    const lengthBytes = length7 === 126 ? 2 : length7 === 127 ? 8 : 0;
    const maskBytes = (second & 0x80) === 0 ? 0 : 4;
    if (this.#headerBytes < 2 + lengthBytes + maskBytes) return;
    if (lengthBytes === 0) this.#payloadLeft = length7;
    else if (lengthBytes === 2) this.#payloadLeft = this.#header.readUInt16BE(2);
    // A length beyond what a number holds exactly is one that never ends.
    else this.#payloadLeft = Number(this.#header.readBigUInt64BE(2));
    this.#headerBytes = 0;
  }
}

const HEADER_BYTES_MAX = 14;

/** A close frame as servers send it: unmasked. */
export function closeFrame(code: number, reason: string): Buffer {
  const payload = Buffer.concat([Buffer.alloc(2), Buffer.from(reason)]);
  payload.writeUInt16BE(code, 0);
  return Buffer.concat([Buffer.of(0x88, payload.length), payload]);
}
