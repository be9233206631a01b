import { createHash } from "node:crypto";
import { apiFailure } from "@capsem/api";
import { VM_LIMITS } from "../limits.ts";

/**
 * A user id of its own for each living VM where the service is root, so that one escaped hypervisor can touch
 * no other. Elsewhere every VM has the service's own, which is null.
 */
export class UidSlots {
  readonly #isRoot: boolean;
  readonly #used = new Set<number>();

  readonly #base: number;

  /** `home` chooses the range: services of one host seldom share one. */
  constructor(serviceUid: number, home: string) {
    this.#isRoot = serviceUid === 0;
    const range = createHash("sha256").update(home).digest().readUInt32BE(0) % VM_LIMITS.uidRanges;
    this.#base = VM_LIMITS.uidBase + range * VM_LIMITS.uidSlots;
  }

  take(): number | null {
    if (!this.#isRoot) return null;
    for (let slot = 0; slot < VM_LIMITS.uidSlots; slot++) {
      if (this.#used.has(slot)) continue;
      this.#used.add(slot);
      return this.#base + slot;
    }
    throw apiFailure("quota", `Cannot start a VM: all ${VM_LIMITS.uidSlots} user ids are in use`);
  }

  release(uid: number | null): void {
    if (uid !== null) this.#used.delete(uid - this.#base);
  }
}
