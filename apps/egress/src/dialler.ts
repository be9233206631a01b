import { type Deferred, defer, Failure } from "@capsem/base";
import {
  type HttpAnswer,
  type HttpCall,
  type HttpFailureKind,
  type HttpHeader,
  headerProblem,
  httpFailure,
  parseUrl,
  type UrlParts,
} from "@capsem/net";
import type { Exchange } from "./exchange.ts";
import type { HttpPool, HttpPoolOptions } from "./http-pool.ts";
import { type Admission, Lease, type LeaseEnd } from "./lease.ts";
import { EGRESS_LIMITS } from "./limits.ts";
import { outgoing } from "./request-headers.ts";

export interface AdmissionRequest {
  readonly server: string | null;
  readonly url: string;
  readonly method: string;
  readonly headers: HttpCall["headers"];
  readonly traceId: string | null;
  /** Of the caller, where it is asked for one request alone: a person may have to answer within it. */
  readonly timeoutMs: number | null;
}

export interface DiallerParts {
  /** Asks the service. The signal is that of the request, where it is asked for one request alone. */
  readonly admit: (request: AdmissionRequest, signal: AbortSignal | undefined) => Promise<Admission>;
  readonly done: (end: LeaseEnd) => void;
  readonly openPool: (options: Pick<HttpPoolOptions, "target" | "addresses" | "secrets">) => HttpPool;
  readonly nowMs: () => number;
}

/** What has been asked for and not answered yet. */
interface Admitting {
  readonly server: string | null;
  /** What is taken back meanwhile was admitted before: its answer may come behind. */
  isTakenBack: boolean;
}

/** What dials for one client: its own leases, its own connections. */
export class Dialler {
  readonly #parts: DiallerParts;
  /** By server and origin: those that take new requests. */
  readonly #leases = new Map<string, Lease>();
  /** Those too whose last requests are under way. */
  readonly #live = new Set<Lease>();
  readonly #admissions = new Map<string, { readonly server: string; readonly lease: Promise<Lease> }>();
  readonly #admitting = new Set<Admitting>();
  /** Failures of a moment ago. */
  readonly #refusals = new Map<string, { readonly untilMs: number; readonly failure: unknown }>();

  constructor(parts: DiallerParts) {
    this.#parts = parts;
  }

  /** Makes one request. What it throws is for the client. */
  async serve(call: HttpCall, signal: AbortSignal): Promise<HttpAnswer> {
    const target = checked(call);
    const turn = new Turn(target.host, call.timeout_ms, signal);
    try {
      const found = this.#standing(call.server, target);
      const lease = found ?? (await turn.race(this.#admitted(call, target, turn.signal)));
      if (lease.isOver) throw httpFailure("policy", `Cannot fetch from ${target.host}: ${TAKEN_BACK}`);
      if (turn.failure !== null) throw lease.isOfOne ? lease.unused(turn.failure) : turn.failure;
      const exchange = this.#start(lease, call, target);
      turn.exchange = exchange;
      const head = await exchange.head;
      return { head, body: exchange };
    } finally {
      turn.end();
    }
  }

  /** Null: of every server. What is under way for them fails. */
  revoke(server: string | null, why: string): void {
    for (const admitting of this.#admitting) {
      if (server === null || admitting.server === server) admitting.isTakenBack = true;
    }
    // Who comes from now on is admitted anew.
    for (const [key, coming] of this.#admissions) {
      if (server === null || coming.server === server) this.#admissions.delete(key);
    }
    for (const lease of this.#live) {
      if (server === null || lease.server === server) this.#revoke(lease, why);
    }
    this.#refusals.clear();
  }

  /** The client has gone. */
  end(): void {
    this.revoke(null, "its client has gone");
  }

  get leaseCount(): number {
    return this.#live.size;
  }

  #revoke(lease: Lease, why: string): void {
    this.#forget(lease);
    void lease.revoke(httpFailure("policy", `Cannot fetch from ${lease.target.host}: ${why}`));
  }

  #standing(server: string | null, target: UrlParts): Lease | null {
    if (server === null) return null;
    const lease = this.#leases.get(keyOf(server, target));
    return lease === undefined || lease.isOver ? null : lease;
  }

  /** Requests of one server that come while it is being admitted wait for the same answer. */
  #admitted(call: HttpCall, target: UrlParts, signal: AbortSignal): Promise<Lease> {
    const { server } = call;
    if (server === null) return this.#admit(call, target, signal);
    const key = keyOf(server, target);
    const refusal = this.#refusals.get(key);
    if (refusal !== undefined && this.#parts.nowMs() < refusal.untilMs)
      return Promise.reject(refusal.failure);
    this.#refusals.delete(key);
    const known = this.#admissions.get(key);
    if (known !== undefined) return known.lease;
    const lease = this.#admit(call, target, undefined)
      .catch((failure: unknown) => {
        // What may be otherwise by the next try is asked again.
        if (!(failure instanceof Failure && failure.retryable)) this.#remember(key, failure);
        throw failure;
      })
      .finally(() => {
        if (this.#admissions.get(key) === coming) this.#admissions.delete(key);
      });
    const coming = { server, lease };
    this.#admissions.set(key, coming);
    return lease;
  }

  #remember(key: string, failure: unknown): void {
    // Nearly all of so many are of long ago.
    if (this.#refusals.size >= EGRESS_LIMITS.refusalsMax) this.#refusals.clear();
    this.#refusals.set(key, { untilMs: this.#parts.nowMs() + EGRESS_LIMITS.refusalMs, failure });
  }

  async #admit(call: HttpCall, target: UrlParts, signal: AbortSignal | undefined): Promise<Lease> {
    const { server, url, method } = call;
    const headers = call.headers.map(([name, value]): HttpHeader => [name, isPrivate(name) ? "" : value]);
    const timeoutMs = server === null ? call.timeout_ms : null;
    const request = { server, url, method, headers, traceId: call.trace_id, timeoutMs };
    const admitting: Admitting = { server, isTakenBack: false };
    this.#admitting.add(admitting);
    let admission: Admission;
    try {
      admission = await this.#parts.admit(request, signal);
    } finally {
      this.#admitting.delete(admitting);
    }
    const { addresses, lease: id } = admission;
    if (admitting.isTakenBack) {
      this.#parts.done({ ...UNUSED, lease: id, error: "revoked" });
      throw httpFailure("policy", `Cannot fetch from ${target.host}: ${TAKEN_BACK}`, { retryable: true });
    }
    // An address is dialled as it stands in the URL.
    if (addresses.length === 0 || (target.isAddress && !addresses.includes(target.host))) {
      this.#parts.done({ ...UNUSED, lease: id, error: "dns_failed" });
      throw httpFailure("dns_failed", `Cannot fetch from ${target.host}: no address was admitted`);
    }
    const lease = new Lease({
      ...{ server, target, admission },
      pool: this.#parts.openPool({ target, ...admission }),
      nowMs: this.#parts.nowMs,
      onEnd: (ended, end) => {
        this.#forget(ended);
        this.#live.delete(ended);
        this.#parts.done(end);
      },
    });
    this.#live.add(lease);
    if (lease.isOfOne && signal?.aborted === true) lease.unused(signal.reason);
    else if (!lease.isOfOne && server !== null) this.#leases.set(keyOf(server, target), lease);
    return lease;
  }

  #start(lease: Lease, call: HttpCall, target: UrlParts): Exchange {
    const { headers, secrets } = lease.admission;
    lease.sent(call.body?.length ?? 0);
    return lease.pool.request({
      path: target.path,
      method: call.method,
      headers: outgoing(call.headers, headers, secrets.length > 0),
      body: call.body,
      isLast: lease.isOfOne,
      onEnd: (end) => lease.ended(end),
    });
  }

  #forget(lease: Lease): void {
    if (lease.server === null) return;
    const key = keyOf(lease.server, lease.target);
    if (this.#leases.get(key) === lease) this.#leases.delete(key);
  }
}

/** The time and the patience of one caller. */
class Turn {
  exchange: Exchange | null = null;
  readonly #host: string;
  readonly #caller: AbortSignal;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #onAbort: () => void;
  failure: Failure<HttpFailureKind> | null = null;
  #stop: AbortController | null = null;
  #raced: Deferred<never> | null = null;

  constructor(host: string, timeoutMs: number | null, caller: AbortSignal) {
    this.#host = host;
    this.#caller = caller;
    this.#onAbort = () => this.#fail(httpFailure("cancelled", `Cannot fetch from ${host}: cancelled`));
    if (caller.aborted) this.#onAbort();
    else caller.addEventListener("abort", this.#onAbort, { once: true });
    if (timeoutMs !== null) this.#timer = setTimeout(() => this.#timeOut(timeoutMs), timeoutMs);
  }

  /** Of what is done for this caller alone. */
  get signal(): AbortSignal {
    this.#stop ??= new AbortController();
    if (this.failure !== null) this.#stop.abort(this.failure);
    return this.#stop.signal;
  }

  async race<T>(work: Promise<T>): Promise<T> {
    this.#raced = defer<never>();
    this.#raced.promise.catch(() => undefined);
    // Nobody may be left who hears of it.
    work.catch(() => undefined);
    if (this.failure !== null) throw this.failure;
    return Promise.race([work, this.#raced.promise]);
  }

  /** The head has come, or none will. */
  end(): void {
    clearTimeout(this.#timer);
    this.#caller.removeEventListener("abort", this.#onAbort);
  }

  #timeOut(timeoutMs: number): void {
    this.#fail(httpFailure("timeout", `Cannot fetch from ${this.#host}: no answer within ${timeoutMs} ms`));
  }

  #fail(failure: Failure<HttpFailureKind>): void {
    this.failure ??= failure;
    this.#stop?.abort(failure);
    this.#raced?.reject(failure);
    this.exchange?.fail(failure);
  }
}

const UNUSED = { status: null, bytes_sent: 0, bytes_received: 0, duration_ms: 0 } as const;
const TAKEN_BACK = "the permission for it was taken back";

const METHOD = /^[A-Z]{1,32}$/;
/** They make a tunnel, or show what is sent. */
const REFUSED_METHODS: ReadonlySet<string> = new Set(["CONNECT", "TRACE", "TRACK"]);

function checked({ url, method, headers }: HttpCall): UrlParts {
  const read = parseUrl(url);
  if (read.kind === "refused") throw httpFailure("invalid_input", `Cannot fetch the URL: ${read.reason}`);
  if (!METHOD.test(method) || REFUSED_METHODS.has(method)) {
    throw httpFailure(
      "invalid_input",
      `Cannot fetch by ${JSON.stringify(method.slice(0, 32))}: no such method`,
    );
  }
  const problem = headerProblem(headers);
  if (problem !== null) throw httpFailure("invalid_input", `Cannot send the request: ${problem}`);
  return read.parts;
}

function keyOf(server: string, { origin }: UrlParts): string {
  return `${server} ${origin}`;
}

/** Its value is nothing that a rule reads. */
function isPrivate(name: string): boolean {
  const lower = name.toLowerCase();
  return lower === "authorization" || lower === "cookie" || lower === "proxy-authorization";
}
