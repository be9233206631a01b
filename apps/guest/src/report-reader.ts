import type { Readable } from "node:stream";
import { ChunkSource } from "./chunk-source.ts";
import { guestFailure } from "./guest-error.ts";
import { HELPER_LIMITS, type HelperReport, parseReport } from "./helper-protocol.ts";

const NEWLINE = 10;

/** Lines, and byte runs that a line announces, from a helper's control descriptor. */
export class ReportReader {
  readonly #source: ChunkSource;
  #held: Buffer = Buffer.alloc(0);

  constructor(stream: Readable) {
    this.#source = new ChunkSource(stream);
  }

  /** The next line without its newline, or null when the helper is gone. */
  async line(): Promise<string | null> {
    for (;;) {
      const at = this.#held.indexOf(NEWLINE);
      if (at >= 0) {
        const line = this.#held.toString("utf8", 0, at);
        this.#held = this.#held.subarray(at + 1);
        return line;
      }
      if (this.#held.length > HELPER_LIMITS.lineBytesMax) throw malformed();
      const chunk = await this.#source.next();
      if (chunk === null) return null;
      this.#held = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    }
  }

  async report(): Promise<HelperReport | null> {
    const line = await this.line();
    if (line === null) return null;
    const report = parseReport(line);
    if (report === undefined) throw malformed();
    return report;
  }

  /** Exactly `count` bytes, which the caller has bounded. */
  async bytes(count: number): Promise<Buffer> {
    const parts = [this.#held];
    let length = this.#held.length;
    while (length < count) {
      const chunk = await this.#source.next();
      if (chunk === null) throw malformed();
      parts.push(chunk);
      length += chunk.length;
    }
    const all = Buffer.concat(parts);
    this.#held = all.subarray(count);
    return all.subarray(0, count);
  }
}

function malformed(): Error {
  return guestFailure("internal", "Cannot finish the request: the helper's report is malformed");
}
