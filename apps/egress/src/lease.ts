import type { ContractParams, EGRESS_SERVICE_METHODS } from "@capsem/api";
import type { Failure } from "@capsem/base";
import type { HttpFailureKind, HttpHeader, UrlParts } from "@capsem/net";
import type { ExchangeEnd } from "./exchange.ts";
import type { HttpPool } from "./http-pool.ts";

export interface Admission {
  readonly lease: string;
  /** 0: of one request. */
  readonly lease_ms: number;
  readonly addresses: readonly string[];
  readonly headers: readonly HttpHeader[];
  readonly secrets: readonly string[];
}

export type LeaseEnd = ContractParams<typeof EGRESS_SERVICE_METHODS, "egress.done">;

export interface LeaseParts {
  readonly server: string | null;
  readonly target: UrlParts;
  readonly admission: Admission;
  readonly pool: HttpPool;
  readonly nowMs: () => number;
  /** Called once, with what its row says. */
  readonly onEnd: (lease: Lease, end: LeaseEnd) => void;
}

/**
 * The right to dial one origin for one client and one server, and the connections that it made. It is `over` for new
 * requests at its end, and ends when the last connection has closed.
 */
export class Lease {
  readonly server: string | null;
  readonly target: UrlParts;
  readonly admission: Admission;
  readonly pool: HttpPool;
  isOver = false;
  readonly #nowMs: () => number;
  readonly #onEnd: LeaseParts["onEnd"];
  readonly #sinceMs: number;
  readonly #timer: NodeJS.Timeout | null;
  #status: number | null = null;
  #bytesSent = 0;
  #bytesReceived = 0;
  #error: string | null = null;

  constructor({ server, target, admission, pool, nowMs, onEnd }: LeaseParts) {
    this.server = server;
    this.target = target;
    this.admission = admission;
    this.pool = pool;
    this.#nowMs = nowMs;
    this.#onEnd = onEnd;
    this.#sinceMs = nowMs();
    const { lease_ms: leaseMs } = admission;
    this.#timer = leaseMs === 0 ? null : setTimeout(() => void this.retire(), leaseMs);
    this.#timer?.unref();
  }

  get isOfOne(): boolean {
    return this.admission.lease_ms === 0;
  }

  sent(bytes: number): void {
    this.#bytesSent += bytes;
  }

  /** One of its requests has ended. */
  ended({ status, bytesReceived, failure, isUnconnected }: ExchangeEnd): void {
    this.#bytesReceived += bytesReceived;
    if (this.isOfOne) {
      this.#status = status;
      this.#error = failure?.kind ?? null;
      void this.retire();
      return;
    }
    // Where nothing answers any more, the name may mean another machine by now.
    if (isUnconnected && (failure?.kind === "connect_failed" || failure?.kind === "tls_failed")) {
      this.#error = failure.kind;
      void this.retire();
    }
  }

  /** Of one request that is not made any more. */
  unused(failure: Failure<HttpFailureKind>): Failure<HttpFailureKind> {
    this.#error = failure.kind;
    void this.retire();
    return failure;
  }

  /** No new request; connections close behind those that are under way. Idempotent. */
  retire(): Promise<void> {
    return this.#finish(() => this.pool.close());
  }

  /** What is under way fails with this. */
  revoke(cause: Failure<HttpFailureKind>): Promise<void> {
    this.#error = "revoked";
    if (this.isOver) return this.pool.destroy(cause);
    return this.#finish(() => this.pool.destroy(cause));
  }

  async #finish(close: () => Promise<void>): Promise<void> {
    if (this.isOver) return;
    this.isOver = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await close();
    this.#onEnd(this, {
      lease: this.admission.lease,
      status: this.#status,
      bytes_sent: this.#bytesSent,
      bytes_received: this.#bytesReceived,
      duration_ms: Math.round((this.#nowMs() - this.#sinceMs) * 1000) / 1000,
      error: this.#error,
    });
  }
}
