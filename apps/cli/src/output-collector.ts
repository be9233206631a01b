import type { StreamData } from "@capsem/api";
import { JSON_STREAM_BYTES_MAX } from "./limits.ts";

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** One stream of a job for `--json`: its beginning up to a limit, as text when it is text. */
export class OutputCollector {
  readonly #parts: Uint8Array[] = [];
  #left = JSON_STREAM_BYTES_MAX;
  #truncated = false;

  add(data: Uint8Array): void {
    const part = data.subarray(0, this.#left);
    this.#truncated ||= part.length < data.length;
    this.#left -= part.length;
    if (part.length > 0) this.#parts.push(Uint8Array.from(part));
  }

  get data(): StreamData {
    const bytes = Buffer.concat(this.#parts);
    try {
      return { encoding: "utf8", data: decoder.decode(bytes), truncated: this.#truncated };
    } catch {
      return { encoding: "base64", data: bytes.toString("base64"), truncated: this.#truncated };
    }
  }
}
