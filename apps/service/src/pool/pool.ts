import { mkdir, rm } from "node:fs/promises";
import { assert, type Deferred, defer, messageOf, newId, within } from "@capsem/base";
import type { LoadedGolden } from "../golden/golden-build.ts";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { POOL_LIMITS } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { VmLogs } from "../log/vm-logs.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { Powers } from "../powers.ts";
import { reasonOf } from "../vm/bring-up.ts";
import type { Launcher } from "../vm/launch.ts";
import { isLegalSlotMove, type SlotState } from "./pool-table.ts";

export interface PoolShape {
  readonly cpus: number;
  readonly memoryMib: number;
}

/** What settings ask for at a moment. */
export interface PoolWant {
  readonly shape: PoolShape;
  readonly target: number;
  readonly allowsUnconfined: boolean;
}

/** A prepared VM. After the claim everything in it is the claimer's. */
export interface Slot {
  readonly id: string;
  /** What was wanted when it was made. */
  readonly of: PoolWant;
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
  readonly want: () => PoolWant;
}

/** Keeps prepared VMs of the default shape, one being made at a time, while the machine has the memory. */
export class Pool {
  readonly #parts: PoolParts;
  readonly #slots = new Set<Slot>();
  /** Warm ones that are kept for creates which are not decided yet. */
  readonly #kept = new Set<Slot>();
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
    return this.#parts.want().target;
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

  /** Settings may be others now: what nobody wants any more goes, and the rest is made. */
  settingsChanged(): void {
    const kept = [...this.#slots].filter(({ state }) => state === "warm" || state === "preparing");
    const useful = kept.filter((slot) => !this.#isStale(slot));
    const surplus = useful.slice(this.target);
    const unwanted = kept.filter((slot) => this.#isStale(slot) || surplus.includes(slot));
    const gone = Promise.all(unwanted.map((slot) => this.#discard(slot)));
    // Their places and their memory are taken until they are gone.
    void gone.then(() => {
      if (this.#isOpen) this.#schedule(0);
    });
  }

  /** Of another size than new VMs have, or made when other confinement was enough. */
  #isStale({ of }: Slot): boolean {
    const { shape, allowsUnconfined } = this.#parts.want();
    return !isSameShape(of.shape, shape) || of.allowsUnconfined !== allowsUnconfined;
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

  /**
   * A warm slot that only its holder may claim, or null. It stays the pool's, and may die or be drained like any; the
   * holder claims it or lets it go.
   */
  keep(shape: PoolShape): Slot | null {
    const slot = [...this.#slots].find((each) => this.#isFree(each, shape));
    if (slot === undefined) return null;
    this.#kept.add(slot);
    return slot;
  }

  letGo(slot: Slot): void {
    this.#kept.delete(slot);
  }

  #isFree(slot: Slot, shape: PoolShape): boolean {
    if (!isSameShape(slot.of.shape, shape) || this.#isStale(slot) || this.#kept.has(slot)) return false;
    return slot.state === "warm" && slot.run !== null && !slot.run.isLost;
  }

  /** `kept`: this one or none, because the VM has its id already. */
  claim(shape: PoolShape, kept?: Slot | null): Slot | null {
    if (kept != null) this.letGo(kept);
    for (const slot of kept === undefined ? this.#slots : [kept]) {
      if (slot === null || !this.#isFree(slot, shape)) continue;
      this.#move(slot, "claimed");
      this.#slots.delete(slot);
      this.claimedCount += 1;
      return slot;
    }
    // The VM has its id, and waits until it is gone.
    if (kept?.state === "warm") void this.#discard(kept);
    if (this.target > 0) this.missedCount += 1;
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
    if (this.target === 0) return;
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
    const { powers } = this.#parts;
    const isQuiet = powers.monotonicMs() - this.#lastUseMs < POOL_LIMITS.drainAfterIdleMs;
    return (
      this.#isOpen &&
      this.#startsUnderWay === 0 &&
      this.#timer === null &&
      isQuiet &&
      this.#slots.size < this.target &&
      this.#hasMemory()
    );
  }

  #hasMemory(): boolean {
    return this.#parts.powers.availableMemoryBytes() >= POOL_LIMITS.availableMemoryBytesMin;
  }

  /** False when the slot failed; nothing of it is left then. */
  async #prepare(): Promise<boolean> {
    const { layout, powers, log, want } = this.#parts;
    const id = newId("vm", powers.random);
    const logs = new VmLogs(vmFolder(layout, id).logs);
    // Known before anything waits: whoever closes or gives way finds it.
    const slot: Slot = {
      ...{ id, of: want(), state: "preparing", logs, abort: new AbortController() },
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
    const { launcher, layout } = this.#parts;
    const { id, of, logs, abort } = slot;
    let golden: LoadedGolden | null = null;
    try {
      // With the folder of the slot around it.
      await mkdir(vmFolder(layout, id).logs, { recursive: true, mode: 0o700 });
      const { image } = await launcher.ground();
      await launcher.createDisk(image, id);
      const launched = await launcher.launch({
        id,
        imageDigest: image.digest,
        ...of.shape,
        pool: true,
        onLogLine: (line) => logs.take(line),
        signal: abort.signal,
      });
      golden = launched.golden;
      slot.run = launched.run;
      await within(launched.run.ready, launched.readyTimeoutMs, undefined, abort.signal);
    } catch (thrown) {
      // The next slot, or whoever creates a VM before, would fork from the same one.
      if (golden !== null && (await reasonOf(slot.run, thrown)) === "checkpoint_corrupt")
        await launcher.invalidateGolden(golden);
      throw thrown;
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
      this.#kept.delete(slot);
    }
  }

  #move(slot: Slot, to: SlotState): void {
    assert(isLegalSlotMove(slot.state, to), `slot ${slot.state} cannot become ${to}`);
    slot.state = to;
  }
}

function isSameShape(one: PoolShape, other: PoolShape): boolean {
  return one.cpus === other.cpus && one.memoryMib === other.memoryMib;
}
