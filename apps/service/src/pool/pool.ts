import { mkdir, rm } from "node:fs/promises";
import { assert, type Deferred, defer, messageOf, newId, within } from "@capsem/base";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { POOL_LIMITS } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { VmLogs } from "../log/vm-logs.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { Powers } from "../powers.ts";
import type { Launcher } from "../vm/launch.ts";
import { isLegalSlotMove, type SlotState } from "./pool-table.ts";

export interface PoolShape {
  readonly cpus: number;
  readonly memoryMib: number;
}

/** A prepared VM. After the claim everything in it is the claimer's. */
export interface Slot {
  readonly id: string;
  state: SlotState;
  readonly logs: VmLogs;
  readonly abort: AbortController;
  run: OwnerRun | null;
  /** Settled when nothing more is made for it: its folder must not go before. */
  readonly made: Deferred<void>;
  discarding: Promise<void> | null;
}

export interface PoolParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly launcher: Launcher;
  readonly log: ServiceLog;
  readonly shape: PoolShape;
  readonly target: number;
}

/** Keeps prepared VMs of the default shape, one being made at a time, while the machine has the memory. */
export class Pool {
  readonly #parts: PoolParts;
  readonly #slots = new Set<Slot>();
  #timer: NodeJS.Timeout | null = null;
  #filling: Promise<void> | null = null;
  #lastUseMs: number;
  #retryMs: number = POOL_LIMITS.retryMsMin;
  #isOpen = false;
  #startsUnderWay = 0;
  /** Slots that failed, for status and tests. */
  discardedCount = 0;
  /** Creates that took a warm slot, and those that would have. */
  claimedCount = 0;
  missedCount = 0;

  constructor(parts: PoolParts) {
    this.#parts = parts;
    this.#lastUseMs = parts.powers.monotonicMs();
  }

  get target(): number {
    return this.#parts.target;
  }

  count(state: SlotState): number {
    return [...this.#slots].filter((slot) => slot.state === state).length;
  }

  /** The owners of all slots. */
  runs(): OwnerRun[] {
    return [...this.#slots].flatMap(({ run }) => (run === null ? [] : [run]));
  }

  open(): void {
    this.#isOpen = true;
    this.#schedule(0);
  }

  fits(shape: PoolShape): boolean {
    return shape.cpus === this.#parts.shape.cpus && shape.memoryMib === this.#parts.shape.memoryMib;
  }

  /** Around every create and start, of whatever shape: the refill waits until the machine is quiet again. */
  async whileStarting<T>(work: () => Promise<T>): Promise<T> {
    this.#startsUnderWay += 1;
    this.#use();
    try {
      return await work();
    } finally {
      this.#startsUnderWay -= 1;
      this.#use();
    }
  }

  #use(): void {
    this.#lastUseMs = this.#parts.powers.monotonicMs();
    if (this.#isOpen) this.#schedule(POOL_LIMITS.refillAfterClaimMs);
  }

  claim(shape: PoolShape): Slot | null {
    for (const slot of this.#slots) {
      if (!this.fits(shape)) break;
      if (slot.state !== "warm" || slot.run === null || slot.run.isLost) continue;
      this.#move(slot, "claimed");
      this.#slots.delete(slot);
      this.claimedCount += 1;
      return slot;
    }
    if (this.#parts.target > 0) this.missedCount += 1;
    this.giveWay();
    return null;
  }

  /** A start that finds no warm slot must not share the processors with one that is being made. */
  giveWay(): void {
    for (const slot of this.#slots) if (slot.state === "preparing") void this.#discard(slot);
  }

  /** Called by the sweep: gives memory back when nobody creates VMs or the machine has none left. */
  async sweep(): Promise<void> {
    const { powers } = this.#parts;
    const isIdle = powers.monotonicMs() - this.#lastUseMs >= POOL_LIMITS.drainAfterIdleMs;
    if (!isIdle && this.#hasMemory()) {
      if (this.#isOpen && this.#timer === null && this.#filling === null) this.#schedule(0);
      return;
    }
    await Promise.all(
      [...this.#slots].filter(({ state }) => state === "warm").map((slot) => this.#discard(slot)),
    );
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    await Promise.all([...this.#slots].map((slot) => this.#discard(slot)));
    await this.#filling;
  }

  #schedule(delayMs: number): void {
    if (this.#parts.target === 0) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#filling ??= this.#fill()
        .catch((thrown: unknown) => {
          this.#parts.log("error", "pool not filled", { cause: messageOf(thrown) });
          if (this.#isOpen) this.#schedule(POOL_LIMITS.retryMsMax);
        })
        .finally(() => {
          this.#filling = null;
        });
    }, delayMs);
    this.#timer.unref();
  }

  async #fill(): Promise<void> {
    while (this.#wantsMore()) {
      const isMade = await this.#prepare();
      if (!isMade) {
        if (this.#isOpen) this.#schedule(this.#retryMs);
        this.#retryMs = Math.min(this.#retryMs * 2, POOL_LIMITS.retryMsMax);
        return;
      }
      this.#retryMs = POOL_LIMITS.retryMsMin;
    }
  }

  #wantsMore(): boolean {
    const { powers, target } = this.#parts;
    const isQuiet = powers.monotonicMs() - this.#lastUseMs < POOL_LIMITS.drainAfterIdleMs;
    return (
      this.#isOpen &&
      this.#startsUnderWay === 0 &&
      this.#timer === null &&
      isQuiet &&
      this.#slots.size < target &&
      this.#hasMemory()
    );
  }

  #hasMemory(): boolean {
    return this.#parts.powers.availableMemoryBytes() >= POOL_LIMITS.availableMemoryBytesMin;
  }

  /** False when the slot failed; nothing of it is left then. */
  async #prepare(): Promise<boolean> {
    const { layout, powers, log } = this.#parts;
    const id = newId("vm", powers.random);
    const { folder, logs: logFolder } = vmFolder(layout, id);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const logs = await VmLogs.open(logFolder);
    const slot: Slot = {
      ...{ id, state: "preparing", logs, abort: new AbortController() },
      ...{ run: null, made: defer(), discarding: null },
    };
    this.#slots.add(slot);
    try {
      await this.#make(slot);
      if (slot.state !== "preparing") return true;
      this.#move(slot, "warm");
      void slot.run?.lost.then(() => this.#onLost(slot));
      return true;
    } catch (thrown) {
      const isOurs = slot.state === "discarded";
      if (!isOurs)
        log("warning", "pool slot failed", { vm_id: id, cause: messageOf(thrown), tail: logs.tail(5) });
      await this.#discard(slot, !isOurs);
      return isOurs;
    }
  }

  async #make(slot: Slot): Promise<void> {
    const { launcher, shape } = this.#parts;
    const { id, logs, abort } = slot;
    try {
      const { image } = await launcher.ground();
      await launcher.createDisk(image, id);
      const launched = await launcher.launch({
        id,
        imageDigest: image.digest,
        ...shape,
        pool: true,
        onLogLine: (line) => logs.take(line),
        signal: abort.signal,
      });
      slot.run = launched.run;
      await within(launched.run.ready, launched.readyTimeoutMs, undefined, abort.signal);
    } finally {
      slot.made.resolve();
    }
  }

  #onLost(slot: Slot): void {
    if (slot.state !== "warm") return;
    this.#parts.log("warning", "pool slot died", { vm_id: slot.id, tail: slot.logs.tail(5) });
    void this.#discard(slot, true);
    if (this.#isOpen) this.#schedule(this.#retryMs);
  }

  /** Never rejects: what cannot be removed is named in the log and goes at the next start. */
  #discard(slot: Slot, hasFailed = false): Promise<void> {
    if (hasFailed) this.discardedCount += 1;
    slot.discarding ??= this.#remove(slot);
    return slot.discarding;
  }

  async #remove(slot: Slot): Promise<void> {
    this.#move(slot, "discarded");
    slot.abort.abort();
    await slot.made.promise;
    try {
      await slot.run?.kill();
      await slot.logs.close();
      await rm(vmFolder(this.#parts.layout, slot.id).folder, { recursive: true, force: true });
    } catch (thrown) {
      this.#parts.log("error", "pool slot not removed", { vm_id: slot.id, cause: messageOf(thrown) });
    } finally {
      this.#slots.delete(slot);
    }
  }

  #move(slot: Slot, to: SlotState): void {
    assert(isLegalSlotMove(slot.state, to), `slot ${slot.state} cannot become ${to}`);
    slot.state = to;
  }
}
