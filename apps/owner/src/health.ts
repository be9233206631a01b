import type { GuestBody } from "@capsem/wire";
import { OWNER_LIMITS } from "./limits.ts";

export interface HealthOptions {
  ping(sequence: number): Promise<void>;
  onChange(guest: "ok" | "unresponsive"): void;
  now(): number;
}

/** Pings the guest agent each second; three missed in a row make it unresponsive, one answer makes it well. */
export class Health {
  readonly #options: HealthOptions;
  #timer: NodeJS.Timeout | null = null;
  #sequence = 0;
  #sentAt = 0;
  #answered = true;
  #missed = 0;
  #state: "ok" | "unresponsive" = "ok";
  guestMs = 0;

  constructor(options: HealthOptions) {
    this.#options = options;
  }

  start(): void {
    this.#answered = true;
    this.#missed = 0;
    this.#timer ??= setInterval(() => this.#tick(), OWNER_LIMITS.pingIntervalMs);
  }

  /** For a paused VM, which cannot answer. */
  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  onPong(body: GuestBody<"pong">): void {
    if (body.sequence !== this.#sequence) return;
    this.#answered = true;
    this.#missed = 0;
    this.guestMs = this.#options.now() - this.#sentAt;
    this.#turn("ok");
  }

  #tick(): void {
    if (!this.#answered) {
      this.#missed += 1;
      if (this.#missed >= OWNER_LIMITS.pingsMissedMax) this.#turn("unresponsive");
    }
    this.#sequence += 1;
    this.#answered = false;
    this.#sentAt = this.#options.now();
    // A lane that is gone is reported by its own end; here it is one more missed ping.
    this.#options.ping(this.#sequence).catch(() => undefined);
  }

  #turn(state: "ok" | "unresponsive"): void {
    if (state === this.#state) return;
    this.#state = state;
    this.#options.onChange(state);
  }
}
