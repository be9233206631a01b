import { Failure } from "@capsem/base";
import { UPSTREAM_LIMITS } from "../limits.ts";

export interface CircuitPowers {
  /** Milliseconds that only grow. */
  now(): number;
  /** In [0, 1). */
  random(): number;
}

/** Leaves a server alone for a while that cannot be reached, twice as long each time, so that its calls fail at once. */
export class Circuit {
  readonly #powers: CircuitPowers;
  #failures = 0;
  #dueAt = 0;
  #words = "";

  constructor(powers: CircuitPowers) {
    this.#powers = powers;
  }

  /** Throws "upstream_failed" until the next attempt is due. */
  check(): void {
    if (this.#failures === 0) return;
    const waitMs = this.#dueAt - this.#powers.now();
    if (waitMs <= 0) return;
    const inWords = waitMs < 1_000 ? "a moment" : `${Math.ceil(waitMs / 1_000)} s`;
    throw new Failure("upstream_failed", `${this.#words}; it is tried again in ${inWords}`, {
      retryable: true,
      detail: "circuit_open",
    });
  }

  /** Of many that fail together the first one counts. */
  failed(failure: Failure): void {
    if (this.#failures > 0 && this.#powers.now() < this.#dueAt) return;
    const { backoffMsMin, backoffMsMax } = UPSTREAM_LIMITS;
    const delayMs = Math.min(backoffMsMin * 2 ** Math.min(this.#failures, 20), backoffMsMax);
    this.#failures += 1;
    // Between half of it and all of it: servers that went together do not come back together.
    this.#dueAt = this.#powers.now() + delayMs * (0.5 + this.#powers.random() / 2);
    this.#words = failure.message;
  }

  succeeded(): void {
    this.#failures = 0;
  }
}
