import { Failure } from "@capsem/base";
import { FETCH_LIMITS } from "./limits.ts";
import { tooLarge } from "./zstd-frames.ts";

/** Watches over what a body is decompressed to: its size, and how much more than it came as. */
export class Growth {
  received = 0;
  made = 0;

  /** Throws "too_large". */
  receive(bytes: number): void {
    this.received += bytes;
    if (this.received > FETCH_LIMITS.bodyBytesMax) throw tooLarge();
  }

  /** Throws "too_large". */
  make(bytes: number): void {
    this.made += bytes;
    if (this.made > FETCH_LIMITS.bodyBytesMax) throw tooLarge();
    const allowed = Math.max(FETCH_LIMITS.ratioFreeBytes, this.received * FETCH_LIMITS.ratioMax);
    if (this.made > allowed) {
      const words = `it grows to more than ${FETCH_LIMITS.ratioMax} times what was sent`;
      throw new Failure("too_large", `Cannot decompress the body: ${words}`);
    }
  }
}
