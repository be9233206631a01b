import type { Rail } from "../conversation.ts";
import { ByteBudget } from "./byte-budget.ts";
import { HttpSession } from "./http-session.ts";
import type { DownLimits } from "./limits.ts";

export interface HttpSessionsOptions {
  readonly rail: Rail;
  /** Unguessable: who has one speaks for the session. */
  readonly newId: () => string;
  readonly nowMs: () => number;
  readonly limits: DownLimits;
}

/** The sessions of one VM. Those that nobody uses end by themselves, for most clients do not say that they go. */
export class HttpSessions {
  readonly #options: HttpSessionsOptions;
  /** The one used longest ago comes first. */
  readonly #sessions = new Map<string, HttpSession>();
  readonly #sweeper: NodeJS.Timeout;
  readonly #kept: ByteBudget;
  #opened = 0;

  constructor(options: HttpSessionsOptions) {
    this.#options = options;
    this.#kept = new ByteBudget(options.limits.resumeCharsMax);
    this.#sweeper = setInterval(() => this.sweep(), options.limits.sessionIdleMs / 4);
    this.#sweeper.unref();
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Characters that are kept for clients that may come back. */
  get keptChars(): number {
    return this.#kept.usedBytes;
  }

  /** Undefined: all there may be are in use. */
  open(): HttpSession | undefined {
    if (this.#sessions.size >= this.#options.limits.sessionsMax && !this.#makeRoom()) return undefined;
    this.#opened += 1;
    const { newId, rail, limits } = this.#options;
    const taintKey = `http:${this.#opened}`;
    const session = new HttpSession({ id: newId(), taintKey, rail, kept: this.#kept, limits });
    this.#sessions.set(session.id, session);
    session.usedMs = this.#options.nowMs();
    return session;
  }

  /** And marks it as used. */
  use(id: string): HttpSession | undefined {
    const session = this.#sessions.get(id);
    if (session === undefined) return undefined;
    this.#sessions.delete(id);
    this.#sessions.set(id, session);
    session.usedMs = this.#options.nowMs();
    return session;
  }

  close(session: HttpSession): void {
    if (this.#sessions.get(session.id) === session) this.#sessions.delete(session.id);
    session.close();
  }

  sweep(): void {
    const oldest = this.#options.nowMs() - this.#options.limits.sessionIdleMs;
    for (const session of this.#sessions.values()) {
      if (session.isIdle && session.usedMs <= oldest) this.close(session);
    }
  }

  closeAll(): void {
    clearInterval(this.#sweeper);
    for (const session of [...this.#sessions.values()]) this.close(session);
  }

  #makeRoom(): boolean {
    for (const session of this.#sessions.values()) {
      if (!session.isIdle) continue;
      this.close(session);
      return true;
    }
    return false;
  }
}
