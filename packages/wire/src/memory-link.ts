import type { Transport } from "./types.ts";

/** One end of a link: what it writes reaches the other end's listener in a later microtask. */
export interface LinkEnd extends Transport {
  onChunk(listener: (chunk: Uint8Array) => void): void;
  onClose(listener: () => void): void;
}

export interface LinkOptions {
  /** Cuts what was written into the chunks that arrive. Default: as written. */
  readonly split?: (chunk: Uint8Array) => readonly Uint8Array[];
  /** Bytes under way after which `write` says false. */
  readonly highWaterBytes?: number;
}

/** A transport pair without a kernel between its ends: for tests, and for two parts of one process. */
export function createMemoryLink(options: LinkOptions = {}): { a: LinkEnd; b: LinkEnd } {
  const a = new End(options);
  const b = new End(options);
  a.join(b);
  b.join(a);
  return { a, b };
}

class End implements LinkEnd {
  readonly #options: LinkOptions;
  #peer: End | undefined;
  #chunkListener: (chunk: Uint8Array) => void = () => undefined;
  #drainListener: () => void = () => undefined;
  #closeListener: () => void = () => undefined;
  #queue: Uint8Array[] = [];
  #queuedBytes = 0;
  #isScheduled = false;
  #isBlocked = false;
  #isClosed = false;

  constructor(options: LinkOptions) {
    this.#options = options;
  }

  join(peer: End): void {
    this.#peer = peer;
  }

  write(chunk: Uint8Array): boolean {
    if (this.#isClosed) return true;
    this.#queue.push(chunk);
    this.#queuedBytes += chunk.length;
    this.#schedule();
    this.#isBlocked = this.#queuedBytes >= (this.#options.highWaterBytes ?? 65_536);
    return !this.#isBlocked;
  }

  onDrain(listener: () => void): void {
    this.#drainListener = listener;
  }

  onChunk(listener: (chunk: Uint8Array) => void): void {
    this.#chunkListener = listener;
  }

  onClose(listener: () => void): void {
    this.#closeListener = listener;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => this.#deliver());
  }

  #deliver(): void {
    this.#isScheduled = false;
    const queue = this.#queue;
    this.#queue = [];
    this.#queuedBytes = 0;
    for (const chunk of queue) {
      for (const part of this.#options.split?.(chunk) ?? [chunk]) this.#peer?.accept(part);
    }
    if (this.#isClosed && this.#queue.length === 0) this.#peer?.acceptClose();
    if (this.#isBlocked) {
      this.#isBlocked = false;
      this.#drainListener();
    }
  }

  accept(chunk: Uint8Array): void {
    if (!this.#isClosed) this.#chunkListener(chunk);
  }

  acceptClose(): void {
    this.#closeListener();
  }
}
