import { type Deferred, defer, Failure, sleep } from "@capsem/base";
import { type MuxStream, writeJobChunks } from "@capsem/wire";
import type { ChunkSource } from "./chunk-source.ts";
import type { Gate } from "./gate.ts";

export type OutputKind = "stdout" | "stderr";

/** Smaller chunks than this, that follow each other faster than this, are let gather for so long. */
const FLOOD_CHUNK_BYTES = 16_384;
const FLOOD_GAP_MS = 5;
const FLOOD_PAUSE_MS = 2;

/**
 * Where a job's output goes: the host's stream of this job. It waits for the first stream a while, because
 * that comes on another lane; when there is none, or it was lost with its generation, output is counted and
 * thrown away, so that the program is never held up by a host that went away.
 */
export class JobOutput {
  readonly #gate: Gate;
  readonly #nowMs: () => number;
  readonly #bytes = { stdout: 0, stderr: 0 };
  #stream: MuxStream | undefined;
  hadStream = false;
  #first: Deferred<void> | undefined = defer<void>();
  readonly #timer: NodeJS.Timeout;

  constructor(gate: Gate, nowMs: () => number, firstStreamTimeoutMs: number) {
    this.#gate = gate;
    this.#nowMs = nowMs;
    this.#timer = setTimeout(() => this.#stopWaiting(), firstStreamTimeoutMs);
  }

  get stdoutBytes(): number {
    return this.#bytes.stdout;
  }

  get stderrBytes(): number {
    return this.#bytes.stderr;
  }

  /** A later stream takes the place of an earlier one. */
  attach(stream: MuxStream): void {
    if (this.#stream !== undefined && this.#stream !== stream) this.#stream.reset("cancelled");
    this.#stream = stream;
    this.hadStream = true;
    this.#stopWaiting();
  }

  /** Moves one pipe to its end; reads no further than the stream has taken. */
  async pump(source: ChunkSource, kind: OutputKind): Promise<void> {
    let sentMs = 0;
    for (let chunk = await source.next(); chunk !== null; chunk = await source.next()) {
      this.#bytes[kind] += chunk.length;
      if (this.#first !== undefined) await this.#first.promise;
      const bytes = chunk;
      await this.#gate.pass(() => this.#send(kind, bytes));
      // A program that writes without rest is woken for each of its small writes; a pause lets them gather.
      const isFlood = bytes.length < FLOOD_CHUNK_BYTES && this.#nowMs() - sentMs < FLOOD_GAP_MS;
      if (isFlood) await sleep(FLOOD_PAUSE_MS);
      sentMs = this.#nowMs();
    }
  }

  /** Everything was pumped: the stream's end says so. */
  async end(): Promise<void> {
    this.#stopWaiting();
    await this.#gate.pass(async () => this.#stream?.end());
  }

  /** The job never ran. */
  refuse(): void {
    this.#stopWaiting();
    this.#stream?.reset("refused");
  }

  async #send(kind: OutputKind, bytes: Uint8Array): Promise<void> {
    const stream = this.#stream;
    if (stream === undefined) return;
    try {
      await writeJobChunks(stream, kind, bytes);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (this.#stream === stream) this.#stream = undefined;
    }
  }

  #stopWaiting(): void {
    clearTimeout(this.#timer);
    this.#first?.resolve();
    this.#first = undefined;
  }
}
