import { type Deferred, defer } from "@capsem/base";

/**
 * What sends frames passes here first. Closed, nothing new starts; `idle` says when what was under way has
 * left. So no frame is in flight while the VM is saved.
 */
export class Gate {
  #opening: Deferred<void> | undefined;
  #underWay = 0;
  #idle: Deferred<void> | undefined;

  async pass<T>(work: () => Promise<T>): Promise<T> {
    while (this.#opening !== undefined) await this.#opening.promise;
    this.#underWay += 1;
    try {
      return await work();
    } finally {
      this.#underWay -= 1;
      if (this.#underWay === 0) {
        this.#idle?.resolve();
        this.#idle = undefined;
      }
    }
  }

  close(): void {
    this.#opening ??= defer();
  }

  open(): void {
    this.#opening?.resolve();
    this.#opening = undefined;
  }

  async idle(): Promise<void> {
    while (this.#underWay > 0) {
      this.#idle ??= defer();
      await this.#idle.promise;
    }
  }
}
