import {
  type ContractParams,
  type ContractResult,
  decodeFacts,
  type ErrorKind,
  PROXY_METHODS,
  PROXY_SERVICE_METHODS,
  type ProxyServer,
  type ToolPin,
} from "@capsem/api";
import { defer, Failure, ignore, messageOf } from "@capsem/base";
import type { CallOptions, Handler, RpcContext } from "@capsem/rpc";
import type { LedgerWriter, Redactor, VmFacts } from "../boundary/parts.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { PolicyHolder } from "../policy/policy-holders.ts";
import { FactLoan } from "./fact-credit.ts";
import { FactSink } from "./fact-sink.ts";
import type { HeldEnd } from "./guest-asks.ts";
import { FACT_LIMITS, PROXY_LIMITS } from "./limits.ts";
import type { SnapshotBook } from "./snapshot-book.ts";
import type { WorkerProcess } from "./worker-process.ts";

type Asked<M extends keyof typeof PROXY_SERVICE_METHODS> = ContractParams<typeof PROXY_SERVICE_METHODS, M>;
type Given<M extends keyof typeof PROXY_METHODS> = ContractParams<typeof PROXY_METHODS, M>;

/** Declared servers and what is known of their tools, as all proxies get them. */
export interface ServerSet {
  readonly generation: number;
  readonly servers: ProxyServer[];
  readonly disabled: string[];
  readonly pins: ToolPin[];
}

export interface LinkParts {
  readonly ledger: LedgerWriter & {
    roomOf(ledger: string): { readonly refusal: Failure<ErrorKind> | null; readonly load: number };
  };
  readonly redactor: Redactor;
  readonly rules: SnapshotBook;
  /** From now on told of new rules; returns how to leave. */
  readonly holdPolicy: (holder: PolicyHolder) => () => void;
  readonly serverSet: () => ServerSet;
  readonly holdAsk: (held: Asked<"ask.hold">, vm: VmFacts | null, context: RpcContext) => Promise<HeldEnd>;
  /** `reporter` stands for the one process that looked. */
  readonly reportPins: (asked: Asked<"pins.report">, reporter: object) => Promise<readonly ToolPin[]>;
  readonly reportHealth: (asked: Asked<"server.health">) => void;
  /** A declared server has answered a call. */
  readonly onAnswered: (server: string) => void;
  readonly log: ServiceLog;
}

/** What is this proxy's own. */
export interface LinkScope {
  readonly scope: string;
  /** As rules see it at this moment. */
  readonly vm: () => VmFacts | null;
  readonly needWorker: (kind: "aggregator" | "builtin") => Promise<void>;
  /** Something was called: its VM is not idle. */
  readonly onActivity: () => void;
}

/** The service's end of one proxy: gives it rules, servers and credit, and takes what it records and asks. */
export class ProxyLink {
  /** It has its rules and serves. Rejects when that did not come to be. */
  readonly serving: Promise<void>;
  readonly sink: FactSink;
  readonly #parts: LinkParts;
  readonly #own: LinkScope;
  readonly #loan: FactLoan;
  readonly #serving = defer<void>();
  readonly #callers = new Set<string>();
  #worker: WorkerProcess | null = null;
  #leave: () => void = () => undefined;
  #timer: NodeJS.Timeout | null = null;
  #soon: NodeJS.Timeout | null = null;
  /** The latest set is with the proxy: what was just declared can be called. */
  #serversTold: Promise<void> = Promise.resolve();
  #rulesTold: Promise<void> = Promise.resolve();

  constructor(parts: LinkParts, own: LinkScope) {
    this.#parts = parts;
    this.#own = own;
    this.serving = this.#serving.promise;
    ignore(this.serving);
    const { scope } = own;
    this.sink = new FactSink({
      ...parts,
      scope,
      isCaller: (who) => this.#callers.has(callerKey(who.requester, who.token_id)),
    });
    this.#loan = new FactLoan({
      room: () => parts.ledger.roomOf(scope),
      send: (grant) => void this.#tell("facts.credit", { add: grant.add, refusing: grant.refusing }),
    });
  }

  /** What the proxy calls. */
  handlers(): Readonly<Record<string, Handler>> {
    const { holdAsk, reportPins, reportHealth } = this.#parts;
    const asked = <M extends keyof typeof PROXY_SERVICE_METHODS>(method: M, params: unknown) =>
      parsed(method, params) as Asked<M>;
    return {
      "worker.need": async (params) => {
        await this.#own.needWorker(asked("worker.need", params).kind);
        return {};
      },
      "facts.append": async (params) => {
        this.#take(params);
        return {};
      },
      "ask.hold": (params, context) => holdAsk(asked("ask.hold", params), this.#own.vm(), context),
      "pins.report": async (params) => ({ pins: await reportPins(asked("pins.report", params), this) }),
      "server.health": async (params) => {
        reportHealth(asked("server.health", params));
        return {};
      },
    };
  }

  /** Once, when the process has started. Never rejects: `serving` says how it went. */
  async begin(worker: WorkerProcess): Promise<void> {
    this.#worker = worker;
    void worker.lost.then(() => this.#ended());
    try {
      await worker.ready;
      // A ledger that has not been opened yet is, before the first call waits for it.
      await this.#parts.ledger
        .ready(this.#own.scope, AbortSignal.timeout(PROXY_LIMITS.startPushTimeoutMs))
        .catch(() => undefined);
      if (worker.isLost) throw ended();
      this.#leave = this.#parts.holdPolicy(this.#holder(worker));
      await this.#pushRules(PROXY_LIMITS.startPushTimeoutMs);
      await this.#push("servers.set", this.#parts.serverSet(), PROXY_LIMITS.startPushTimeoutMs);
      if (worker.isLost) throw ended();
      this.#loan.renew();
      let ticks = 0;
      const tick = () => this.#loan.renew(++ticks % PROXY_LIMITS.creditTicks === 0);
      this.#timer = setInterval(tick, PROXY_LIMITS.creditIntervalMs);
      this.#timer.unref();
      this.#serving.resolve();
    } catch (thrown) {
      worker.condemn(`it did not take its rules: ${messageOf(thrown)}`);
      this.#serving.reject(thrown);
    }
  }

  /** Others are declared, or pins have changed. The old set serves until the proxy has taken it. */
  serversChanged(): void {
    this.#serversTold = this.#tell("servers.set", this.#parts.serverSet());
  }

  /** Its VM has another name: rules may judge by it, so that one that does not take it is replaced. */
  async vmChanged(vm: VmFacts): Promise<void> {
    try {
      await this.#push("vm.set", { vm: { ...vm } }, PROXY_LIMITS.pushTimeoutMs);
    } catch (thrown) {
      this.#worker?.condemn(`it did not take its VM's name: ${messageOf(thrown)}`);
    }
  }

  /** Throws what the proxy answers: "policy", "not_found", "timeout", "upstream_failed", "peer_lost". */
  async call<M extends "tool.call" | "server.look">(
    method: M,
    params: Given<M>,
    options: CallOptions,
  ): Promise<ContractResult<typeof PROXY_METHODS, M>> {
    await this.serving;
    await this.#serversTold;
    if (method === "tool.call") this.#noteCaller(params as Given<"tool.call">);
    const answered = this.#peer().call(method, params, options);
    if (method === "server.look")
      answered.catch((thrown: unknown) => this.#lookFailed(params.server, thrown));
    const answer = await answered;
    return PROXY_METHODS[method].result.parse(answer) as ContractResult<typeof PROXY_METHODS, M>;
  }

  /** Whatever it was: who asks how the server is hears of the look that was asked for last. */
  #lookFailed(server: string, thrown: unknown): void {
    if (!(thrown instanceof Failure) || !LOOK_FAILURES.has(thrown.kind)) return;
    const error = thrown.message.replace(/^Cannot use server "[^"]{1,64}": /, "");
    this.#parts.reportHealth({ server, state: "failed", error });
  }

  #holder(worker: WorkerProcess): PolicyHolder {
    return {
      name: `proxy ${this.#own.scope}`,
      accept: async (_snapshot, signal) => {
        if (worker.isLost) return;
        await this.#pushRules(PROXY_LIMITS.pushTimeoutMs, signal);
        this.serversChanged();
      },
      async replace(why) {
        worker.condemn(why.message);
        await worker.gone;
      },
    };
  }

  #take(params: unknown): void {
    const { bytes, ...message } = (params ?? {}) as Readonly<Record<string, unknown>>;
    const facts = readFacts(message);
    this.sink.append(facts);
    this.#loan.spend(
      facts.length,
      typeof bytes === "number" ? bytes : facts.length * FACT_LIMITS.factBytesUsual,
    );
    this.#loan.renew();
    if (this.#loan.isShort) this.#lendSoon();
    this.#own.onActivity();
  }

  /** The ledger is behind: calls may wait for each bit of room that it makes. */
  #lendSoon(): void {
    if (this.#soon !== null) return;
    this.#soon = setTimeout(() => {
      this.#soon = null;
      this.#loan.renew();
      if (this.#loan.isShort) this.#lendSoon();
    }, PROXY_LIMITS.creditSoonMs);
    this.#soon.unref();
  }

  #noteCaller({ requester, token_id }: Given<"tool.call">): void {
    this.#callers.add(callerKey(requester, token_id));
    const [oldest] = this.#callers;
    if (this.#callers.size > PROXY_LIMITS.callersMax && oldest !== undefined) this.#callers.delete(oldest);
  }

  /** One set after the other, the newest of that moment each: an older one that is large must not come behind it. */
  #pushRules(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const pushed = this.#rulesTold.then(() =>
      this.#push("policy.set", this.#parts.rules.rules(), timeoutMs, signal),
    );
    this.#rulesTold = pushed.catch(() => undefined);
    return pushed;
  }

  async #push<M extends "policy.set" | "servers.set" | "facts.credit" | "vm.set">(
    method: M,
    params: Given<M>,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<void> {
    await this.#peer().call(method, params, { timeoutMs, ...(signal === undefined ? {} : { signal }) });
  }

  /** What it does not take now it gets once more with the next change; one that hangs is found by its beat. */
  async #tell<M extends "servers.set" | "facts.credit">(method: M, params: Given<M>): Promise<void> {
    if (this.#worker?.isReady !== true || this.#worker.isLost) return;
    try {
      await this.#push(method, params, PROXY_LIMITS.pushTimeoutMs);
    } catch (thrown) {
      if (this.#worker.isLost) return;
      const { scope } = this.#own;
      this.#parts.log("error", "a proxy did not take a change", { scope, method, cause: messageOf(thrown) });
      this.#worker.condemn(`it did not take ${method}`);
    }
  }

  #peer(): WorkerProcess {
    if (this.#worker === null) throw new Failure("peer_lost", "Cannot call the proxy: it has not started");
    return this.#worker;
  }

  async #ended(): Promise<void> {
    this.#leave();
    if (this.#timer !== null) clearInterval(this.#timer);
    if (this.#soon !== null) clearTimeout(this.#soon);
    this.#serving.reject(ended());
    // What came with the end of its channel is still being read: a call that it says has ended was not interrupted.
    await new Promise((resolve) => setImmediate(resolve));
    await this.sink.close();
  }
}

const LOOK_FAILURES: ReadonlySet<string> = new Set(["upstream_failed", "timeout", "policy"]);

function ended(): Failure {
  return new Failure("worker_lost", "Cannot use the proxy: its process ended");
}

function parsed(method: keyof typeof PROXY_SERVICE_METHODS, params: unknown): unknown {
  const read = PROXY_SERVICE_METHODS[method].params.safeParse(params);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw new Failure(
    "invalid_input",
    `Cannot read ${method}: ${issue?.path.join(".") ?? ""} ${issue?.message ?? "it has another shape"}`,
  );
}

/** Checked by hand, as each of them is. */
function readFacts({ facts, bodies }: Readonly<Record<string, unknown>>): readonly unknown[] {
  const isMessage = isBytes(facts) && Array.isArray(bodies) && bodies.every(isBytes);
  try {
    const list = isMessage ? decodeFacts({ facts, bodies }) : null;
    if (list !== null) return list;
  } catch (thrown) {
    if (!(thrown instanceof SyntaxError)) throw thrown;
  }
  throw new Failure("invalid_input", "Cannot record: there is no list of facts");
}

function isBytes(value: unknown): value is Uint8Array {
  return value instanceof Uint8Array;
}

function callerKey(requester: string, tokenId: string | null): string {
  return `${requester}\n${tokenId ?? ""}`;
}
