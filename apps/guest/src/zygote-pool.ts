import { type Deferred, defer, Failure, sleep } from "@capsem/base";
import { GUEST_LIMITS } from "./limits.ts";
import type { Zygote } from "./zygote.ts";

/**
 * Keeps helpers warm. Starting one takes the guest's CPU from what the user waits for, so it refills only
 * after a pause; a command that finds none has one started at once.
 */
export class ZygotePool {
  readonly #spawn: () => Zygote;
  readonly #isAtRest: (pid: number) => boolean;
  readonly #onFailure: (error: unknown) => void;
  readonly #idle: Zygote[] = [];
  readonly #waiting: Deferred<Zygote>[] = [];
  readonly #all = new Set<Zygote>();
  #refillTimer: NodeJS.Timeout | undefined;
  #isPumping = false;
  #isClosed = false;

  constructor(spawn: () => Zygote, isAtRest: (pid: number) => boolean, onFailure: (error: unknown) => void) {
    this.#spawn = spawn;
    this.#isAtRest = isAtRest;
    this.#onFailure = onFailure;
  }

  get idleCount(): number {
    return this.#idle.length;
  }

  /** Every helper that lives: idle, at work, or held by a background process. */
  get liveCount(): number {
    return this.#all.size;
  }

  start(): void {
    this.#refill();
  }

  take(): Promise<Zygote> {
    if (this.#isClosed) throw new Failure("wrong_state", "Cannot start: the VM is shutting down");
    this.#refillLater();
    const ready = this.#idle.shift();
    if (ready !== undefined) return Promise.resolve(ready);
    const waiter = defer<Zygote>();
    this.#waiting.push(waiter);
    this.#pump();
    return waiter.promise;
  }

  /** A helper that has this request: one that was killed while it waited is passed over. */
  async request(bytes: Uint8Array): Promise<Zygote> {
    for (let tries = 0; tries <= GUEST_LIMITS.zygotesWarm; tries++) {
      const zygote = await this.take();
      if (await zygote.request(bytes)) return zygote;
      zygote.close();
    }
    throw new Failure("internal", "Cannot start: the helper ended");
  }

  /** Refills now, and lets the new ones get to where they wait: before the machine is saved or paused. */
  async fill(): Promise<void> {
    clearTimeout(this.#refillTimer);
    this.#refillTimer = undefined;
    while (!this.#isClosed && this.#idle.length < GUEST_LIMITS.zygotesWarm) this.#idle.push(this.#add());
    await sleep(GUEST_LIMITS.zygoteSettleMs);
    // On a crowded host they are not there yet, and every fork would have them start once more.
    const isSettled = () => this.#idle.every(({ pid }) => pid === undefined || this.#isAtRest(pid));
    for (let tries = 0; tries < GUEST_LIMITS.zygoteSettleTries && !isSettled(); tries++) {
      await sleep(GUEST_LIMITS.zygoteSettleMs);
    }
  }

  /** Something that used a helper ended: the pause begins again. */
  rest(): void {
    this.#refillLater();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#refillTimer);
    for (const waiter of this.#waiting.splice(0)) {
      waiter.reject(new Failure("wrong_state", "Cannot start: the VM is shutting down"));
    }
    for (const zygote of this.#all) zygote.close();
  }

  /** Resolves when no helper lives any more. */
  async ended(): Promise<void> {
    await Promise.all([...this.#all].map((zygote) => zygote.exited));
  }

  /** One start a turn of the event loop, so that a ping between two is answered. */
  #pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    const step = () => {
      const waiter = this.#waiting.shift();
      if (waiter === undefined) {
        this.#isPumping = false;
        return;
      }
      try {
        waiter.resolve(this.#add());
      } catch (cause) {
        waiter.reject(new Failure("quota", "Cannot start: the guest has no room for a process", { cause }));
      }
      setImmediate(step);
    };
    step();
  }

  #refillLater(): void {
    if (this.#isClosed) return;
    if (this.#refillTimer !== undefined) {
      this.#refillTimer.refresh();
      return;
    }
    this.#refillTimer = setTimeout(() => {
      this.#refillTimer = undefined;
      this.#refill();
    }, GUEST_LIMITS.zygoteRefillDelayMs);
  }

  #refill(): void {
    if (this.#isClosed || this.#idle.length >= GUEST_LIMITS.zygotesWarm) return;
    try {
      this.#idle.push(this.#add());
    } catch (error) {
      // Out of processes or descriptors: whoever needs one is told so; the pool tries again after a while.
      this.#onFailure(error);
      this.#refillLater();
      return;
    }
    setImmediate(() => this.#refill());
  }

  #add(): Zygote {
    const zygote = this.#spawn();
    this.#all.add(zygote);
    zygote.exited.then(() => {
      this.#all.delete(zygote);
      const at = this.#idle.indexOf(zygote);
      if (at < 0) return;
      this.#idle.splice(at, 1);
      this.#refillLater();
    });
    return zygote;
  }
}
