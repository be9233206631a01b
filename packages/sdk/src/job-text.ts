import type { JobChunk, JobExit } from "./job.ts";
import { LINE_CHARS_MAX, OUTPUT_BYTES_MAX } from "./limits.ts";

export interface JobLine {
  readonly stream: "stdout" | "stderr";
  /** Without its end. */
  readonly line: string;
}

/** `truncated`: not all of the output is here, because the VM or this client keeps no more. */
export interface JobOutput extends JobExit {
  readonly stdout: string;
  readonly stderr: string;
}

/** Output as lines; the last one may lack its end, and a very long one comes in parts. */
export async function* linesOf(chunks: AsyncIterable<JobChunk>): AsyncGenerator<JobLine> {
  const texts = { stdout: new LineReader(), stderr: new LineReader() };
  for await (const { stream, data } of chunks)
    for (const line of texts[stream].push(data)) yield { stream, line };
  for (const stream of ["stdout", "stderr"] as const)
    for (const line of texts[stream].end()) yield { stream, line };
}

export async function outputOf(
  chunks: AsyncIterable<JobChunk>,
  exit: PromiseLike<JobExit>,
): Promise<JobOutput> {
  const texts = { stdout: "", stderr: "" };
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  const bytes = { stdout: 0, stderr: 0 };
  let truncated = false;
  for await (const { stream, data } of chunks) {
    const part = data.subarray(0, OUTPUT_BYTES_MAX - bytes[stream]);
    truncated ||= part.length < data.length;
    bytes[stream] += part.length;
    texts[stream] += decoders[stream].decode(part, { stream: true });
  }
  const end = await exit;
  const stdout = texts.stdout + decoders.stdout.decode();
  const stderr = texts.stderr + decoders.stderr.decode();
  return { ...end, stdout, stderr, truncated: truncated || end.truncated };
}

class LineReader {
  readonly #decoder = new TextDecoder();
  #rest = "";

  *push(data: Uint8Array): Generator<string> {
    yield* this.#cut(this.#decoder.decode(data, { stream: true }));
    if (this.#rest.length <= LINE_CHARS_MAX) return;
    yield this.#rest;
    this.#rest = "";
  }

  *end(): Generator<string> {
    yield* this.#cut(this.#decoder.decode());
    if (this.#rest !== "") yield this.#rest;
    this.#rest = "";
  }

  *#cut(text: string): Generator<string> {
    const lines = text.split("\n");
    for (const [at, line] of lines.entries()) {
      this.#rest += line;
      if (at === lines.length - 1) return;
      yield this.#rest.endsWith("\r") ? this.#rest.slice(0, -1) : this.#rest;
      this.#rest = "";
    }
  }
}
