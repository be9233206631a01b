interface Waiting {
  readonly grant: () => void;
}

/** A number of places. Who finds none waits for one, in turn; who gives up while waiting leaves the queue. */
export class Slots {
  readonly #waitingMax: number;
  readonly #waiting = new Set<Waiting>();
  #free: number;

  constructor(places: number, waitingMax: number) {
    this.#free = places;
    this.#waitingMax = waitingMax;
  }

  /**
   * Resolves with how to give the place back, once and for all. Rejects with the signal's reason. Null: too many wait
   * already.
   */
  take(signal?: AbortSignal): Promise<() => void> | null {
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve(this.#place());
    }
    if (this.#waiting.size >= this.#waitingMax) return null;
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.delete(waiting);
        reject(signal?.reason);
      };
      const waiting = {
        grant: () => {
          signal?.removeEventListener("abort", leave);
          resolve(this.#place());
        },
      };
      this.#waiting.add(waiting);
      signal?.addEventListener("abort", leave, { once: true });
    });
  }

  #place(): () => void {
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const [next] = this.#waiting;
      if (next === undefined) {
        this.#free += 1;
        return;
      }
      this.#waiting.delete(next);
      next.grant();
    };
  }
}
