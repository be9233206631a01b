import { EGRESS_ADMISSION_LIMITS } from "./limits.ts";

export interface DialEnd {
  readonly status: number | null;
  readonly bytes_sent: number;
  readonly bytes_received: number;
  readonly duration_ms: number;
  readonly error: string | null;
}

/** Something that was admitted, until somebody says how it ended. */
export interface OpenDial {
  readonly client: string;
  /** Null: one request of a builtin tool. */
  readonly server: string | null;
  /** Of the declaration that it was admitted by. */
  readonly declaration: string;
  readonly refs: readonly string[];
  readonly sinceMs: number;
  /** Writes its row; called once. Null: nobody lives who could say it. */
  end(end: DialEnd | null): void;
}

/** What is open of one life of egress. */
export class OpenDials {
  readonly #dials = new Map<string, OpenDial>();
  readonly #nowMs: () => number;
  #isOver = false;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  get size(): number {
    return this.#dials.size;
  }

  get isFull(): boolean {
    if (this.#dials.size < EGRESS_ADMISSION_LIMITS.openMax) return false;
    this.#endForgotten();
    return this.#dials.size >= EGRESS_ADMISSION_LIMITS.openMax;
  }

  /** Of a life that is over it ends at once: its admission was under way. So does another one of that name. */
  add(lease: string, dial: OpenDial): void {
    this.#dials.get(lease)?.end(null);
    if (this.#isOver) dial.end(null);
    else this.#dials.set(lease, dial);
  }

  /** False: there is none, or it has ended. */
  end(lease: string, end: DialEnd): boolean {
    const dial = this.#dials.get(lease);
    this.#dials.delete(lease);
    dial?.end(end);
    return dial !== undefined;
  }

  /** That life is over. Idempotent. */
  endAll(): void {
    this.#isOver = true;
    for (const [lease, dial] of this.#dials) {
      this.#dials.delete(lease);
      dial.end(null);
    }
  }

  /** Servers of which something is open that fits no more. */
  serversWhere(isGone: (dial: OpenDial) => boolean): string[] {
    const servers = new Set<string>();
    for (const dial of this.#dials.values()) {
      if (dial.server !== null && isGone(dial)) servers.add(dial.server);
    }
    return [...servers];
  }

  #endForgotten(): void {
    const before = this.#nowMs() - EGRESS_ADMISSION_LIMITS.requestMsMax;
    for (const [lease, dial] of this.#dials) {
      if (dial.server !== null || dial.sinceMs >= before) continue;
      this.#dials.delete(lease);
      dial.end(null);
    }
  }
}
