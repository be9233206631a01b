import { open } from "node:fs/promises";
import { Failure, messageOf, within } from "@capsem/base";
import { GOLDEN_LIMITS, TIMES } from "../limits.ts";
import type { GoldenIdentity, StoredGolden } from "../machinery.ts";
import { buildGolden, type GoldenParts, type LoadedGolden } from "./golden-build.ts";

/**
 * The goldens in memory, by key. A first request loads one from the store or builds it, and everybody who
 * asks meanwhile shares that. Null says that there is none: boot cold.
 */
export class GoldenBook {
  readonly #parts: GoldenParts;
  /** In order of use, the latest last. */
  readonly #loaded = new Map<string, LoadedGolden>();
  readonly #coming = new Map<string, Promise<LoadedGolden | null>>();
  readonly #failedAtMs = new Map<string, number>();
  readonly #onBuilt: () => void;
  #makingCount = 0;
  #isClosed = false;

  constructor(parts: GoldenParts, onBuilt: () => void = () => undefined) {
    this.#parts = parts;
    this.#onBuilt = onBuilt;
  }

  /** For status: those in memory, and those being built. */
  get counts(): { ready: number; making: number } {
    return { ready: this.#loaded.size, making: this.#makingCount };
  }

  /** What is returned stays open at least until the caller's next turn: use it before awaiting. */
  async get(identity: GoldenIdentity, signal?: AbortSignal): Promise<LoadedGolden | null> {
    const key = this.#parts.machinery.goldenKey(identity);
    const ready = this.#loaded.get(key);
    if (ready !== undefined) return this.#use(ready);
    if (this.#failedRecently(key)) return null;
    let coming = this.#coming.get(key);
    if (coming === undefined) {
      coming = this.#bring(identity, key).finally(() => this.#coming.delete(key));
      this.#coming.set(key, coming);
    }
    return within(coming, TIMES.goldenTimeoutMs + TIMES.stopTimeoutMs, undefined, signal);
  }

  /** A fork said that this golden does not load: it is forgotten, and the next request builds another. */
  async invalidate(key: string): Promise<void> {
    const loaded = this.#loaded.get(key);
    this.#loaded.delete(key);
    if (loaded !== undefined) await this.#close(loaded);
    await this.#parts.machinery.goldens.remove(key);
    this.#parts.log("warning", "golden is corrupt: it will be built again", { key });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.allSettled(this.#coming.values());
    for (const golden of this.#loaded.values()) await this.#close(golden);
    this.#loaded.clear();
  }

  #failedRecently(key: string): boolean {
    const failedAt = this.#failedAtMs.get(key);
    return failedAt !== undefined && this.#parts.powers.monotonicMs() - failedAt < TIMES.goldenRetryMs;
  }

  #use(golden: LoadedGolden): LoadedGolden {
    this.#loaded.delete(golden.key);
    this.#loaded.set(golden.key, golden);
    return golden;
  }

  async #bring(identity: GoldenIdentity, key: string): Promise<LoadedGolden | null> {
    const { log, powers } = this.#parts;
    const startedMs = powers.monotonicMs();
    try {
      const found = await this.#load(identity, key);
      const golden = found ?? (await this.#build(identity, key));
      this.#failedAtMs.delete(key);
      if (this.#isClosed) {
        await this.#close(golden);
        return null;
      }
      this.#loaded.set(key, golden);
      await this.#collect();
      const durationMs = Math.round(powers.monotonicMs() - startedMs);
      log("info", found === null ? "golden built" : "golden loaded", { key, duration_ms: durationMs });
      return golden;
    } catch (thrown) {
      this.#failedAtMs.set(key, powers.monotonicMs());
      const detail = thrown instanceof Failure ? thrown.detail : undefined;
      log("error", "no golden: VMs of this shape boot cold", { key, cause: messageOf(thrown), detail });
      return null;
    }
  }

  async #build(identity: GoldenIdentity, key: string): Promise<LoadedGolden> {
    this.#makingCount += 1;
    try {
      const golden = await buildGolden(this.#parts, identity, key);
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

  async #close(golden: LoadedGolden): Promise<void> {
    this.#parts.machinery.closeDescriptor(golden.memoryFd);
    await golden.state.close();
  }
}
