import { closeSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { assert } from "@capsem/base";
import { OWNER_LIMITS } from "./limits.ts";

export type OutputKind = 1 | 2;

interface Segment {
  readonly kind: OutputKind;
  readonly start: number;
  end: number;
}

/**
 * The last `bytesMax` bytes of a job's stdout and stderr, in the order they came, in a ring file of the VM's
 * own folder: the host's memory holds the index alone. An offset counts bytes of both streams together.
 */
export class JobSpool {
  readonly #path: string;
  readonly #bytesMax: number;
  #fd: number | null = null;
  #segments: Segment[] = [];
  #first = 0;
  #end = 0;
  #isWhole = false;
  #closed = false;
  #removed = false;
  #wakers = new Set<() => void>();

  constructor(path: string, bytesMax: number = OWNER_LIMITS.jobOutputBytesMax) {
    this.#path = path;
    this.#bytesMax = bytesMax;
  }

  get firstOffset(): number {
    return this.#first;
  }

  get endOffset(): number {
    return this.#end;
  }

  get keptBytes(): number {
    return this.#end - this.#first;
  }

  /** Bytes were dropped: what is kept does not begin at 0. */
  get truncated(): boolean {
    return this.#first > 0;
  }

  /** The guest has ended the job's output; the job itself may not be done yet. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** It had bytes that nobody can read any more. */
  get removed(): boolean {
    return this.#removed;
  }

  append(kind: OutputKind, bytes: Uint8Array): void {
    assert(!this.#closed, "append to a closed spool");
    if (bytes.length === 0) return;
    this.#fd ??= openSync(this.#path, "w+", 0o600);
    const kept = bytes.length > this.#bytesMax ? bytes.subarray(bytes.length - this.#bytesMax) : bytes;
    this.#end += bytes.length - kept.length;
    this.#writeRing(this.#fd, kept);
    const last = this.#segments.at(-1);
    if (last !== undefined && last.kind === kind && kept.length === bytes.length) last.end += kept.length;
    else this.#segments.push({ kind, start: this.#end, end: this.#end + kept.length });
    this.#end += kept.length;
    this.#dropOld();
    this.#wake();
  }

  /** The next run of one stream's bytes at or after `offset`, at most `bytesMax` of it; null at the end. */
  read(offset: number, bytesMax: number): { kind: OutputKind; offset: number; bytes: Uint8Array } | null {
    const from = Math.max(offset, this.#first);
    const segment = this.#segmentAt(from);
    if (segment === null || this.#fd === null) return null;
    const bytes = Buffer.allocUnsafe(Math.min(bytesMax, segment.end - from));
    this.#readRing(this.#fd, from, bytes);
    return { kind: segment.kind, offset: from, bytes };
  }

  /** Resolves when something was appended, nothing more will be, the spool was closed, or `signal` fired. */
  more(signal?: AbortSignal): Promise<void> {
    if (this.#closed || signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        this.#wakers.delete(wake);
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      this.#wakers.add(wake);
      signal?.addEventListener("abort", wake, { once: true });
    });
  }

  /** Nothing is appended any more: who reads on to the job's end waits for `close`. */
  end(): void {
    this.#isWhole = true;
    this.#wake();
  }

  /** No more output. What is kept can still be read. */
  close(): void {
    this.#closed = true;
    this.#wake();
  }

  /** Gives the file back; nothing can be read any more. Idempotent. */
  remove(): void {
    this.close();
    if (this.#fd === null) return;
    this.#removed = true;
    closeSync(this.#fd);
    this.#fd = null;
    this.#first = this.#end;
    this.#segments = [];
    unlinkSync(this.#path);
  }

  #segmentAt(offset: number): Segment | null {
    let low = 0;
    let high = this.#segments.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const segment = this.#segments[middle];
      if (segment === undefined) return null;
      if (offset < segment.start) high = middle - 1;
      else if (offset >= segment.end) low = middle + 1;
      else return segment;
    }
    return null;
  }

  #dropOld(): void {
    this.#first = Math.max(this.#first, this.#end - this.#bytesMax);
    let gone = 0;
    while (gone < this.#segments.length && (this.#segments[gone]?.end ?? 0) <= this.#first) gone += 1;
    const over = this.#segments.length - gone - OWNER_LIMITS.segmentsMax;
    // Many at once, so that alternating output does not shift the index on every append.
    if (over > 0) gone += over + OWNER_LIMITS.segmentsMax / 8;
    if (gone === 0) return;
    this.#segments.splice(0, gone);
    this.#first = Math.max(this.#first, this.#segments[0]?.start ?? this.#end);
  }

  #writeRing(fd: number, bytes: Uint8Array): void {
    const at = this.#end % this.#bytesMax;
    const head = Math.min(bytes.length, this.#bytesMax - at);
    writeSync(fd, bytes, 0, head, at);
    if (head < bytes.length) writeSync(fd, bytes, head, bytes.length - head, 0);
  }

  #readRing(fd: number, offset: number, into: Uint8Array): void {
    const at = offset % this.#bytesMax;
    const head = Math.min(into.length, this.#bytesMax - at);
    readSync(fd, into, 0, head, at);
    if (head < into.length) readSync(fd, into, head, into.length - head, 0);
  }

  #wake(): void {
    for (const wake of [...this.#wakers]) wake();
  }
}
