import { type Panic, WORKER_METHODS, type WorkerGrant, type WorkerKind, type WorkerPlan } from "@capsem/api";
import { type Deferred, defer, Failure, ignore, messageOf, within } from "@capsem/base";
import { LAUNCH_STEPS } from "@capsem/native";
import { createPeer, type Handler, type Peer } from "@capsem/rpc";
import { LOG_LIMITS, TIMES } from "../limits.ts";
import { LineGate } from "../log/line-gate.ts";
import { createLineSplitter } from "../log/line-splitter.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { settledWithin } from "../owner/settled.ts";
import type { OwnerChild, OwnerExit, Powers } from "../powers.ts";
import { OwnerWords } from "../trouble/owner-words.ts";
import { WORKER_LIMITS } from "./limits.ts";

export interface WorkerParts {
  readonly powers: Pick<Powers, "startWorker" | "pairs" | "nowMs" | "monotonicMs" | "random">;
  /** `confinement.allow_unconfined`, asked at each start. */
  readonly allowUnconfined: () => boolean;
  readonly onLogLine: (kind: WorkerKind, scope: string, line: string) => void;
  readonly keepPanic: (panic: Panic) => void;
  readonly log: ServiceLog;
}

export interface WorkerStart {
  readonly kind: WorkerKind;
  readonly scope: string;
  readonly vm: WorkerPlan["vm"];
  /** The lane's far end stays the caller's: the worker has a copy. */
  readonly lane?: { readonly fd: number; readonly marker: string; readonly generation: number };
  readonly handlers: Readonly<Record<string, Handler>>;
}

/** After stdin, none, stderr: the plan's own numbers. */
const SERVICE_FD = 3;
const GRANTS_FD = 4;
const LANE_FD = 5;

/** One life of a worker: started, ready, lost, gone. Whoever started it stops it. */
export class WorkerProcess {
  readonly kind: WorkerKind;
  readonly scope: string;
  /** Rejects when it ended before. */
  readonly ready: Promise<void>;
  /** Its channel is over: every call to it has ended. Never rejects. */
  readonly lost: Promise<void>;
  /** It is no more, or could not be killed in time; how it ended. Never rejects. */
  readonly gone: Promise<string>;
  isReady = false;
  isLost = false;
  readonly #parts: WorkerParts;
  readonly #child: OwnerChild;
  readonly #peer: Peer;
  readonly #grantsFd: number;
  readonly #ready: Deferred<void> = defer();
  readonly #words: OwnerWords;
  readonly #saidAll: Promise<void>;
  #granting: Promise<void> = Promise.resolve();
  #isStopped = false;
  #beat: NodeJS.Timeout | null = null;

  /** Throws when there can be no process at all. */
  constructor(parts: WorkerParts, start: WorkerStart) {
    this.#parts = parts;
    this.kind = start.kind;
    this.scope = start.scope;
    this.#words = new OwnerWords(start.kind);
    const { child, grantsFd, plan } = spawned(parts, start);
    this.#child = child;
    this.#grantsFd = grantsFd;
    this.#saidAll = this.#listen();
    this.#peer = createPeer({
      role: "host",
      duplex: child.rpc,
      handlers: { ...start.handlers, "worker.ready": (params) => this.#onReady(params) },
      onInternalError: (method, thrown) =>
        parts.log("error", "a worker's call failed", { ...this.#name, method, cause: messageOf(thrown) }),
    });
    this.ready = this.#ready.promise;
    ignore(this.ready);
    child.stdin.on("error", () => undefined);
    child.stdin.end(`${JSON.stringify(plan)}\n`);
    this.lost = this.#watchLoss();
    this.gone = this.#watchEnd();
    this.#killWhenLate();
  }

  get pid(): number | null {
    return this.#child.pid;
  }

  call: Peer["call"] = (method, params, options) => this.#peer.call(method, params, options);

  /** Takes `fd` over: the worker gets a copy, in the order of the calls, and it is closed here. Never rejects. */
  grant(grant: WorkerGrant, fd: number): Promise<void> {
    const { pairs, log } = { ...this.#parts, ...this.#parts.powers };
    const send = async () => {
      try {
        if (this.isLost) return;
        await pairs.send(
          this.#grantsFd,
          Buffer.from(JSON.stringify(grant)),
          fd,
          WORKER_LIMITS.grantTimeoutMs,
        );
      } catch (thrown) {
        // One that reads no grants is of no use: its successor gets them all anew.
        log("error", "a worker took no grant", { ...this.#name, cause: messageOf(thrown) });
        this.kill();
      } finally {
        pairs.close(fd);
      }
    };
    this.#granting = this.#granting.then(send);
    return this.#granting;
  }

  /** In order, by the end of its channel; it has a moment for it. Resolves when it is gone. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#peer.close();
    await this.gone;
  }

  kill(): void {
    this.#child.kill();
  }

  /** What it did is not to be trusted, or it does not answer: it is killed, and that is told. */
  condemn(why: string): void {
    if (this.isLost) return;
    this.#parts.log("error", "a worker is ended", { ...this.#name, pid: this.pid, why });
    this.kill();
  }

  get #name() {
    return { worker: this.kind, scope: this.scope };
  }

  async #onReady(params: unknown) {
    const { unconfined, notes } = WORKER_METHODS["worker.ready"].params.parse(params);
    const words = [...unconfined, ...notes].join(", ").slice(0, WORKER_LIMITS.wordsCharactersMax);
    const level = unconfined.length > 0 ? "warning" : "info";
    this.#parts.log(level, "worker ready", {
      ...this.#name,
      pid: this.pid,
      unconfined: unconfined.length,
      words,
    });
    this.isReady = true;
    this.#ready.resolve();
    this.#watchBeat();
    return {};
  }

  #killWhenLate(): void {
    const timer = setTimeout(() => {
      if (!this.isReady) this.condemn(`it was not ready within ${WORKER_LIMITS.readyTimeoutMs} ms`);
    }, WORKER_LIMITS.readyTimeoutMs);
    timer.unref();
    void this.lost.then(() => clearTimeout(timer));
  }

  /** Any answer will do, that there is no such method too: it shows that the process goes round. */
  #watchBeat(): void {
    const ask = async () => {
      try {
        await this.#peer.call("worker.beat", {}, { timeoutMs: WORKER_LIMITS.beatTimeoutMs });
      } catch (thrown) {
        if (thrown instanceof Failure && thrown.kind === "timeout") this.condemn("it does not answer");
      }
      if (!this.isLost) later();
    };
    const later = () => {
      this.#beat = setTimeout(() => void ask(), WORKER_LIMITS.beatIntervalMs);
      this.#beat.unref();
    };
    later();
  }

  #listen(): Promise<void> {
    const { onLogLine, powers } = this.#parts;
    const { stderr } = this.#child;
    const onLine = (line: string) => {
      this.#words.take(line);
      onLogLine(this.kind, this.scope, line);
    };
    const lines = createLineSplitter(LOG_LIMITS.lineBytesMax, onLine, new LineGate(powers.monotonicMs));
    stderr.on("error", () => undefined);
    stderr.on("data", (chunk: Buffer) => lines.push(chunk));
    return new Promise((resolve) => {
      stderr.on("end", () => {
        lines.end();
        resolve();
      });
    });
  }

  async #watchLoss(): Promise<void> {
    const { ended } = this.#peer;
    // The news of a process's end may overtake what it said before, behind which its channel ends.
    const exited = this.#child.exited.then(() => settledWithin(ended, TIMES.lastWordsTimeoutMs));
    await Promise.race([ended, exited]);
    this.isLost = true;
    if (this.#beat !== null) clearTimeout(this.#beat);
    this.#peer.close();
    this.#ready.reject(new Failure("worker_lost", `Cannot start the ${this.kind}: its process ended`));
  }

  async #watchEnd(): Promise<string> {
    await this.lost;
    const { exited } = this.#child;
    if (!(await settledWithin(exited, WORKER_LIMITS.exitTimeoutMs))) this.kill();
    await settledWithin(exited, TIMES.killTimeoutMs);
    await this.#granting;
    this.#parts.powers.pairs.close(this.#grantsFd);
    await settledWithin(this.#saidAll, TIMES.lastWordsTimeoutMs);
    const exit = await within(exited, 1).catch(() => null);
    const how = howOf(exit);
    if (!this.#isStopped) this.#report(exit, how);
    return how;
  }

  #report(exit: OwnerExit | null, how: string): void {
    const { powers, keepPanic, log } = this.#parts;
    // With its lane's end a proxy ends too, in order and by itself.
    const isInOrder = exit?.code === 0;
    log(isInOrder ? "info" : "error", "worker ended", { ...this.#name, pid: this.pid, how });
    if (isInOrder) return;
    // Of its launcher there is no more to tell than which step failed.
    if (LAUNCH_STEPS[exit?.code ?? 0] !== undefined) return;
    const time = new Date(powers.nowMs());
    const vmId = this.scope.startsWith("vm_") ? this.scope : null;
    keepPanic(this.#words.panic({ pid: this.pid ?? 0, time, how, vmId }));
  }
}

/** Every descriptor that is made here is closed here again, but the service's end of the grants. */
function spawned({ powers, allowUnconfined }: WorkerParts, { kind, scope, vm, lane }: WorkerStart) {
  const [grantsFd, theirs] = powers.pairs.socketPair("seqpacket");
  try {
    const plan: WorkerPlan = {
      ...{ kind, scope, vm },
      descriptors: {
        ...{ service: SERVICE_FD, grants: GRANTS_FD },
        ...(lane === undefined ? {} : { lane: LANE_FD }),
      },
      ...(lane === undefined ? {} : { lane: { marker: lane.marker, generation: lane.generation } }),
      allow_unconfined: allowUnconfined(),
    };
    const child = powers.startWorker(plan, [theirs, ...(lane === undefined ? [] : [lane.fd])]);
    return { child, grantsFd, plan };
  } catch (thrown) {
    powers.pairs.close(grantsFd);
    throw thrown;
  } finally {
    powers.pairs.close(theirs);
  }
}

function howOf(exit: OwnerExit | null): string {
  if (exit === null) return "its channel ended";
  const step = LAUNCH_STEPS[exit.code ?? 0];
  if (step === "landlock") {
    return "this machine cannot confine it (docs/confinement.md); `allow_unconfined` starts it without";
  }
  if (step !== undefined) return `its launcher failed at its step "${step}"`;
  return exit.message ?? (exit.signal === null ? `exit code ${exit.code}` : `signal ${exit.signal}`);
}
