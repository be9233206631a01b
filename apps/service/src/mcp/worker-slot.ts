import { apiFailure } from "@capsem/api";
import { messageOf, within } from "@capsem/base";
import { WORKER_LIMITS } from "./limits.ts";
import type { WorkerProcess } from "./worker-process.ts";

export interface SlotParts {
  /** Starts another life. Throws when there can be no process. */
  readonly start: () => WorkerProcess;
  /** It is no more: reaped, its descriptors closed. */
  readonly onGone: (life: WorkerProcess) => void;
  readonly monotonicMs: () => number;
}

/** Place for one worker at a time: started when it is needed, again when it has died, later each time it dies young. */
export class WorkerSlot {
  /** From its start to the moment that it is gone. */
  life: WorkerProcess | null = null;
  readonly #parts: SlotParts;
  #startedMs = 0;
  #deaths = 0;
  #notBeforeMs = Number.NEGATIVE_INFINITY;
  #starting: Promise<WorkerProcess> | null = null;
  #isStopped = false;
  /** Of the last life, for who waits in vain. */
  #how: string | null = null;

  constructor(parts: SlotParts) {
    this.#parts = parts;
  }

  /** One that lives, started where there is none. It need not be ready. Throws "unavailable". */
  need(signal?: AbortSignal): Promise<WorkerProcess> {
    const { life } = this;
    if (life !== null && !life.isLost) return Promise.resolve(life);
    this.#starting ??= this.#begin().finally(() => {
      this.#starting = null;
    });
    const late = () =>
      apiFailure("unavailable", `Cannot start a tool process: ${this.#how ?? "it takes too long"}`);
    return within(this.#starting, WORKER_LIMITS.needTimeoutMs, late, signal);
  }

  /** No more is started. Resolves when the one that lives is gone. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.life?.stop();
  }

  async #begin(): Promise<WorkerProcess> {
    // Two of them never live at once: what they hold is lent to one after another.
    await this.life?.gone;
    const waitMs = this.#notBeforeMs - this.#parts.monotonicMs();
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs).unref());
    if (this.#isStopped) throw apiFailure("unavailable", "Cannot start a tool process: its scope has ended");
    this.#startedMs = this.#parts.monotonicMs();
    try {
      const life = this.#parts.start();
      this.life = life;
      void this.#watch(life);
      return life;
    } catch (thrown) {
      this.#how = messageOf(thrown);
      this.#died(false);
      throw apiFailure("unavailable", `Cannot start a tool process: ${this.#how}`, { cause: thrown });
    }
  }

  async #watch(life: WorkerProcess): Promise<void> {
    this.#how = await life.gone;
    if (this.life === life) this.life = null;
    this.#died(life.isReady);
    this.#parts.onGone(life);
  }

  #died(hasWorked: boolean): void {
    const nowMs = this.#parts.monotonicMs();
    this.#deaths = nowMs - this.#startedMs >= WORKER_LIMITS.youngMs ? 1 : this.#deaths + 1;
    const msMax = WORKER_LIMITS.restartMsMax[hasWorked ? "worked" : "failed"];
    this.#notBeforeMs = nowMs + Math.min(WORKER_LIMITS.restartMsMin * 2 ** (this.#deaths - 1), msMax);
  }
}
