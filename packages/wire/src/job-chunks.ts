import { Failure } from "@capsem/base";
import { getU32, putU32 } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";
import { plainBytes } from "./plain-bytes.ts";
import type { MuxStream } from "./types.ts";

/**
 *  0      1        5
 * +------+--------+-------+
 * | kind | length | bytes |   length big-endian, 1..65,536
 * +------+--------+-------+
 *   u8     u32
 */
export const JOB_CHUNK_KINDS = { stdin: 0, stdout: 1, stderr: 2 } as const;
export type JobChunkKind = keyof typeof JOB_CHUNK_KINDS;
export const JOB_CHUNK_HEADER_BYTES = 5;

export interface JobChunk {
  readonly kind: JobChunkKind;
  readonly bytes: Uint8Array;
}

/** With its header such a chunk fills one data frame of ours. */
const SENT_BYTES_MAX = 32_768 - JOB_CHUNK_HEADER_BYTES;
const KIND_NAMES: readonly JobChunkKind[] = ["stdin", "stdout", "stderr"];

/** `bytes` as chunks, each one buffer with its header. None for no bytes. */
export function encodeJobChunks(kind: JobChunkKind, bytes: Uint8Array): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += SENT_BYTES_MAX) {
    const part = bytes.subarray(at, at + SENT_BYTES_MAX);
    const chunk = new Uint8Array(JOB_CHUNK_HEADER_BYTES + part.length);
    chunk[0] = JOB_CHUNK_KINDS[kind];
    putU32(chunk, 1, part.length);
    chunk.set(part, JOB_CHUNK_HEADER_BYTES);
    chunks.push(chunk);
  }
  return chunks;
}

export async function writeJobChunks(
  stream: MuxStream,
  kind: JobChunkKind,
  bytes: Uint8Array,
): Promise<void> {
  for (const chunk of encodeJobChunks(kind, bytes)) await stream.write(chunk);
}

/**
 * Cuts a byte stream into typed pieces as they arrive; a piece may be a part of a chunk, and nothing is kept
 * but the header. Throws Failure("bad_message" | "too_large" | "wrong_direction"), and is then of no more use.
 */
export class JobChunkDecoder {
  readonly #accepts: readonly JobChunkKind[];
  readonly #header = new Uint8Array(JOB_CHUNK_HEADER_BYTES);
  #headerUsed = 0;
  #kind: JobChunkKind = "stdin";
  #leftBytes = 0;

  constructor(accepts: readonly JobChunkKind[]) {
    this.#accepts = accepts;
  }

  push(input: Uint8Array): JobChunk[] {
    const chunk = plainBytes(input);
    const pieces: JobChunk[] = [];
    let at = 0;
    while (at < chunk.length) {
      if (this.#leftBytes === 0) {
        this.#header[this.#headerUsed] = chunk[at] ?? 0;
        this.#headerUsed += 1;
        at += 1;
        if (this.#headerUsed === JOB_CHUNK_HEADER_BYTES) this.#startChunk();
        continue;
      }
      const bytes = chunk.subarray(at, at + this.#leftBytes);
      this.#leftBytes -= bytes.length;
      at += bytes.length;
      pieces.push({ kind: this.#kind, bytes });
    }
    return pieces;
  }

  /** The stream ended. Throws Failure("truncated") within a chunk. */
  end(): void {
    if (this.#leftBytes === 0 && this.#headerUsed === 0) return;
    throw new Failure("truncated", "Cannot read job chunk: the stream ended within it");
  }

  #startChunk(): void {
    this.#headerUsed = 0;
    const kind = KIND_NAMES[this.#header[0] ?? 0];
    const length = getU32(this.#header, 1);
    if (kind === undefined) {
      throw new Failure("bad_message", `Cannot read job chunk: no kind has number ${this.#header[0]}`);
    }
    if (!this.#accepts.includes(kind)) {
      throw new Failure("wrong_direction", `Cannot read job chunk: ${kind} is sent by this side only`);
    }
    if (length === 0) throw new Failure("bad_message", "Cannot read job chunk: it is empty");
    if (length > WIRE_LIMITS.jobChunkBytesMax) {
      throw new Failure("too_large", `Cannot read job chunk: ${length} bytes`);
    }
    this.#kind = kind;
    this.#leftBytes = length;
  }
}

/** Every piece until the peer's end. A broken chunk resets the stream and throws. */
export async function* readJobChunks(
  stream: MuxStream,
  accepts: readonly JobChunkKind[],
): AsyncGenerator<JobChunk, void, undefined> {
  const decoder = new JobChunkDecoder(accepts);
  try {
    for (let input = await stream.read(); input !== null; input = await stream.read()) {
      yield* decoder.push(input);
    }
    decoder.end();
  } catch (thrown) {
    stream.reset("protocol_error");
    throw thrown;
  }
}
