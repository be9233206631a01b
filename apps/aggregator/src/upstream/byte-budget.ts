import { rude } from "./failure.ts";

/** What one of many readers holds now. */
export interface HeldBytes {
  /** Throws "upstream_failed" when all together would hold more than the budget. */
  set(bytes: number): void;
  close(): void;
}

/** Bytes that messages of one server may hold in memory before they are whole. */
export class ByteBudget {
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get heldBytes(): number {
    return this.#bytes;
  }

  open(): HeldBytes {
    let mine = 0;
    return {
      set: (bytes) => {
        if (this.#bytes - mine + bytes > this.#bytesMax) {
          throw rude(`has unfinished answers of more than ${this.#bytesMax} bytes`);
        }
        this.#bytes += bytes - mine;
        mine = bytes;
      },
      close: () => {
        this.#bytes -= mine;
        mine = 0;
      },
    };
  }
}
