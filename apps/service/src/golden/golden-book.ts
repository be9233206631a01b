import { open } from "node:fs/promises";
import { Failure, messageOf, within } from "@capsem/base";
import { GOLDEN_LIMITS, TIMES } from "../limits.ts";
import type { GoldenIdentity, StoredGolden } from "../machinery.ts";
import { buildGolden, type GoldenParts, type LoadedGolden } from "./golden-build.ts";

/** A golden whose descriptors stay open until `release`, whatever becomes of it. */
export interface HeldGolden {
  readonly golden: LoadedGolden;
  release(): Promise<void>;
}

/**
 * The goldens in memory, by key. A first request loads one from the store or builds it, and everybody who
 * asks meanwhile shares that. Null says that there is none: boot cold.
 */
export class GoldenBook {
  readonly #parts: GoldenParts;
  /** In order of use, the latest last. */
  readonly #loaded = new Map<string, LoadedGolden>();
  readonly #coming = new Map<string, Promise<LoadedGolden | null>>();
  /** Those that are found corrupt, until the store has none of their key. */
  readonly #leaving = new Map<string, Promise<void>>();
  /** How many hold each, and those that the last of them closes. */
  readonly #holders = new Map<LoadedGolden, number>();
  readonly #unwanted = new Set<LoadedGolden>();
  readonly #failedAtMs = new Map<string, number>();
  readonly #onBuilt: () => void;
  #makingCount = 0;
  /** Aborted by `close`. */
  readonly #closing = new AbortController();

  constructor(parts: GoldenParts, onBuilt: () => void = () => undefined) {
    this.#parts = parts;
    this.#onBuilt = onBuilt;
  }

  /** For status: those in memory, and those being built. */
  get counts(): { ready: number; making: number } {
    return { ready: this.#loaded.size, making: this.#makingCount };
  }

  /** What it resolves with is the caller's to release. */
  async hold(identity: GoldenIdentity, signal?: AbortSignal): Promise<HeldGolden | null> {
    const key = this.#parts.machinery.goldenKey(identity);
    for (;;) {
      const ready = this.#loaded.get(key);
      if (ready !== undefined) return this.#hold(ready);
      if (this.#closing.signal.aborted || this.#failedRecently(key)) return null;
      const limitMs = TIMES.goldenTimeoutMs + TIMES.stopTimeoutMs;
      const brought = await within(this.#come(identity, key), limitMs, undefined, signal);
      if (brought === null) return null;
      // It may have been put away again just before we were told of it: then another comes.
    }
  }

  /** A fork said that this golden does not load: it is forgotten, and the next request builds another. */
  async invalidate(golden: LoadedGolden): Promise<void> {
    const { key } = golden;
    const loaded = this.#loaded.get(key);
    // Of several forks the first has said so already: what is there now is another one.
    if (loaded !== golden && (loaded !== undefined || this.#coming.has(key))) return;
    this.#loaded.delete(key);
    const leaving = this.#putAway(key, loaded).finally(() => this.#leaving.delete(key));
    this.#leaving.set(key, leaving);
    await leaving;
  }

  /** What is being built is given up. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#coming.values());
    for (const golden of this.#loaded.values()) await this.#close(golden);
    this.#loaded.clear();
  }

  #failedRecently(key: string): boolean {
    const failedAt = this.#failedAtMs.get(key);
    return failedAt !== undefined && this.#parts.powers.monotonicMs() - failedAt < TIMES.goldenRetryMs;
  }

  #come(identity: GoldenIdentity, key: string): Promise<LoadedGolden | null> {
    const coming =
      this.#coming.get(key) ?? this.#bring(identity, key).finally(() => this.#coming.delete(key));
    this.#coming.set(key, coming);
    return coming;
  }

  #hold(golden: LoadedGolden): HeldGolden {
    this.#loaded.delete(golden.key);
    this.#loaded.set(golden.key, golden);
    this.#holders.set(golden, (this.#holders.get(golden) ?? 0) + 1);
    return { golden, release: () => this.#release(golden) };
  }

  async #release(golden: LoadedGolden): Promise<void> {
    const left = (this.#holders.get(golden) ?? 1) - 1;
    if (left > 0) {
      this.#holders.set(golden, left);
      return;
    }
    this.#holders.delete(golden);
    if (this.#unwanted.delete(golden)) await this.#close(golden);
  }

  async #putAway(key: string, loaded: LoadedGolden | undefined): Promise<void> {
    if (loaded !== undefined) await this.#close(loaded);
    await this.#parts.machinery.goldens.remove(key);
    this.#parts.log("warning", "golden is corrupt: it will be built again", { key });
  }

  async #bring(identity: GoldenIdentity, key: string): Promise<LoadedGolden | null> {
    const { log, powers } = this.#parts;
    const startedMs = powers.monotonicMs();
    try {
      await this.#leaving.get(key);
      const found = await this.#load(identity, key);
      const golden = found ?? (await this.#build(identity, key));
      this.#failedAtMs.delete(key);
      if (this.#closing.signal.aborted) {
        await this.#close(golden);
        return null;
      }
      this.#loaded.set(key, golden);
      await this.#collect();
      const durationMs = Math.round(powers.monotonicMs() - startedMs);
      log("info", found === null ? "golden built" : "golden loaded", { key, duration_ms: durationMs });
      return golden;
    } catch (thrown) {
      if (this.#closing.signal.aborted) return null;
      this.#failedAtMs.set(key, powers.monotonicMs());
      const detail = thrown instanceof Failure ? thrown.detail : undefined;
      log("error", "no golden: VMs of this shape boot cold", { key, cause: messageOf(thrown), detail });
      return null;
    }
  }

  async #build(identity: GoldenIdentity, key: string): Promise<LoadedGolden> {
    this.#makingCount += 1;
    try {
      const golden = await buildGolden(this.#parts, identity, key, this.#closing.signal);
      this.#onBuilt();
      return golden;
    } finally {
      this.#makingCount -= 1;
    }
  }

  /** Null when there is none in the store, or none that can be trusted. */
  async #load(identity: GoldenIdentity, key: string): Promise<LoadedGolden | null> {
    const { machinery, log } = this.#parts;
    try {
      const stored = await machinery.goldens.find(key);
      return stored === null ? null : await this.#intoMemory(identity, key, stored);
    } catch (thrown) {
      log("warning", "golden is corrupt: it is built again", { key, cause: messageOf(thrown) });
      await machinery.goldens.remove(key);
      return null;
    }
  }

  async #intoMemory(identity: GoldenIdentity, key: string, stored: StoredGolden): Promise<LoadedGolden> {
    const { memory, closeDescriptor } = this.#parts.machinery;
    const memoryBytes = identity.memoryMib * 1024 * 1024;
    const ram = await open(stored.ramPath, "r");
    let memoryFd: number | null = null;
    try {
      const { size } = await ram.stat();
      if (size !== memoryBytes) {
        throw new Failure(
          "checkpoint_corrupt",
          `Cannot load a golden: ${size} bytes of memory, not ${memoryBytes}`,
        );
      }
      memoryFd = memory.create(`capsem-golden-${key.slice(0, 16)}`, memoryBytes);
      memory.copy(ram.fd, memoryFd, memoryBytes);
      memory.seal(memoryFd);
      const state = await open(stored.statePath, "r");
      return { key, memoryFd, memoryBytes, state };
    } catch (thrown) {
      if (memoryFd !== null) closeDescriptor(memoryFd);
      throw thrown;
    } finally {
      await ram.close();
    }
  }

  /** Closes the least recently used above the limits, and lets the store do the same on disk. */
  async #collect(): Promise<void> {
    let bytes = 0;
    for (const { memoryBytes } of this.#loaded.values()) bytes += memoryBytes;
    for (const golden of [...this.#loaded.values()]) {
      const isOver = this.#loaded.size > GOLDEN_LIMITS.countMax || bytes > GOLDEN_LIMITS.bytesMax;
      if (!isOver || this.#loaded.size === 1) break;
      bytes -= golden.memoryBytes;
      this.#loaded.delete(golden.key);
      await this.#close(golden);
    }
    await this.#parts.machinery.goldens.collect(GOLDEN_LIMITS, new Set(this.#loaded.keys()));
  }

  /** At once, or with the last who holds it: a number that is closed may be another file's. */
  async #close(golden: LoadedGolden): Promise<void> {
    if (this.#holders.has(golden)) {
      this.#unwanted.add(golden);
      return;
    }
    this.#parts.machinery.closeDescriptor(golden.memoryFd);
    await golden.state.close();
  }
}
