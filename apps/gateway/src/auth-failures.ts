import type { GatewayLog } from "./gateway-log.ts";
import { AUTH_LIMITS } from "./limits.ts";

/**
 * Counts failures alone, for all clients together: on loopback nothing tells them apart. A right token is never
 * throttled. The log gets the first failure of a window, the start of throttling, and later the sum.
 */
export class AuthFailures {
  readonly #times: number[] = [];
  readonly #log: GatewayLog;
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #inWindow = 0;
  #isThrottling = false;

  constructor(log: GatewayLog) {
    this.#log = log;
  }

  /** Records one. Null: answer it as a failure; else the milliseconds to wait, because there were too many. */
  record(nowMs: number): { readonly retryMs: number } | null {
    this.#summarise(nowMs);
    this.#inWindow += 1;
    while ((this.#times[0] ?? nowMs) <= nowMs - AUTH_LIMITS.windowMs) this.#times.shift();
    const oldest = this.#times[0];
    if (oldest !== undefined && this.#times.length >= AUTH_LIMITS.failuresMax) {
      if (!this.#isThrottling) this.#log("warning", "authentication throttled", { failures: this.#inWindow });
      this.#isThrottling = true;
      return { retryMs: oldest + AUTH_LIMITS.windowMs - nowMs };
    }
    this.#times.push(nowMs);
    return null;
  }

  #summarise(nowMs: number): void {
    if (nowMs - this.#windowStartMs < AUTH_LIMITS.windowMs) return;
    if (this.#inWindow > 1) this.#log("warning", "authentication failures", { failures: this.#inWindow });
    this.#log("warning", "authentication failed");
    this.#windowStartMs = nowMs;
    this.#inWindow = 0;
    this.#isThrottling = false;
  }
}
