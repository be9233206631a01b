import { Failure } from "@capsem/base";

interface Waiting {
  readonly grant: () => void;
}
export type Release = () => void;

/**
 * A number of places for many owners. Who finds none waits: owners take turns, and of one owner who came first. Who gives
 * up while waiting leaves the queue.
 */
export class FairSlots {
  readonly #limits: { readonly waitingMax: number; readonly waitingOfOneMax: number };
  /** In the order of their turns. */
  readonly #waiting = new Map<object, Waiting[]>();
  #waitingCount = 0;
  #free: number;

  constructor(places: number, limits: { readonly waitingMax: number; readonly waitingOfOneMax: number }) {
    this.#free = places;
    this.#limits = limits;
  }

  get waitingCount(): number {
    return this.#waitingCount;
  }

  /** Whoever comes now waits. */
  get areTaken(): boolean {
    return this.#free === 0;
  }

  /** How to give the place back, once and for all; undefined: there is none now. */
  takeNow(): Release | undefined {
    if (this.#free === 0) return undefined;
    this.#free -= 1;
    return this.#place();
  }

  /** Rejects with the signal's reason, Failure("timeout"), or Failure("busy") where too many wait already. */
  take(owner: object, signal: AbortSignal, timeoutMs: number): Promise<Release> {
    if (signal.aborted) return Promise.reject(signal.reason);
    const now = this.takeNow();
    if (now !== undefined) return Promise.resolve(now);
    const queue = this.#waiting.get(owner) ?? [];
    if (this.#waitingCount >= this.#limits.waitingMax || queue.length >= this.#limits.waitingOfOneMax) {
      const text = `Cannot start the call: ${queue.length} of its client and ${this.#waitingCount} in all wait`;
      return Promise.reject(new Failure("busy", text, { retryable: true }));
    }
    return new Promise((resolve, reject) => {
      const settle = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", leave);
      };
      const giveUp = (reason: unknown) => {
        settle();
        this.#remove(owner, waiting);
        reject(reason);
      };
      const leave = () => giveUp(signal.reason);
      const timer = setTimeout(() => giveUp(tooLate(timeoutMs)), timeoutMs);
      const waiting = {
        grant: () => {
          settle();
          resolve(this.#place());
        },
      };
      queue.push(waiting);
      this.#waiting.set(owner, queue);
      this.#waitingCount += 1;
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  #place(): Release {
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#next();
    };
  }

  #next(): void {
    const [first] = this.#waiting;
    if (first === undefined) {
      this.#free += 1;
      return;
    }
    const [owner, queue] = first;
    const waiting = queue.shift();
    this.#waitingCount -= 1;
    // Its next one has to wait for those of the others.
    this.#waiting.delete(owner);
    if (queue.length > 0) this.#waiting.set(owner, queue);
    waiting?.grant();
  }

  #remove(owner: object, waiting: Waiting): void {
    const queue = this.#waiting.get(owner);
    const at = queue?.indexOf(waiting) ?? -1;
    if (queue === undefined || at < 0) return;
    queue.splice(at, 1);
    this.#waitingCount -= 1;
    if (queue.length === 0) this.#waiting.delete(owner);
  }
}

function tooLate(timeoutMs: number): Failure {
  return new Failure("timeout", `Cannot start the call: no place for it within ${Math.round(timeoutMs)} ms`, {
    retryable: true,
  });
}
