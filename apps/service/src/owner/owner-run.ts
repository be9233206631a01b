import {
  apiFailure,
  OWNER_METHODS,
  type OwnerMethod,
  type OwnerParams,
  type OwnerResult,
  SERVICE_METHODS,
  type SpawnPlan,
  type VmReason,
} from "@capsem/api";
import { assert, type Deferred, defer, Failure, ignore, within } from "@capsem/base";
import { LAUNCH_STEPS } from "@capsem/native";
import { createPeer, type Peer } from "@capsem/rpc";
import type { MuxStream } from "@capsem/wire";
import { LOG_LIMITS, TIMES } from "../limits.ts";
import { LineGate } from "../log/line-gate.ts";
import { createLineSplitter } from "../log/line-splitter.ts";
import type { OwnerChild, OwnerExit, Processes } from "../powers.ts";
import { callFailure } from "./call-failure.ts";
import { settledWithin } from "./settled.ts";

/** What a caller is told when its owner lives on: the guest agent lost what it was doing. */
const GUEST_LOST: OwnerEnd = { reason: "guest_agent_lost", detail: "" };

export interface OwnerReady {
  readonly state: "warm" | "ready" | "saved";
  readonly hypervisorPid: number;
}

export interface OwnerEnd {
  /** Null: it ended in order, as asked. */
  readonly reason: VmReason | null;
  readonly detail: string;
}

export interface Health {
  owner: "ok" | "unresponsive";
  guest: "ok" | "unresponsive";
}

export interface CallLimits {
  /** Null: as long as it takes, for waits on work in the guest. */
  readonly timeoutMs?: number | null;
  readonly signal?: AbortSignal | undefined;
  readonly trace?: string | undefined;
}

export interface OwnerRunOptions {
  readonly child: OwnerChild;
  readonly plan: SpawnPlan;
  /** The service's end of the traffic lane, open until the run is gone. */
  readonly laneFd: number;
  readonly processes: Processes;
  readonly onLogLine: (line: string) => void;
  readonly monotonicMs: () => number;
  /** Told of each process that must not outlive us: at the spawn, and when the hypervisor is known. */
  readonly onProcess: (role: "owner" | "hypervisor", pid: number) => void;
  /** Resolves when what `onProcess` wrote is on its disk: before it a VM's folder must not be removed. */
  readonly recorded: () => Promise<void>;
}

/** One life of an owner: started, ready, lost, gone. Nothing here waits for another VM. */
export class OwnerRun {
  readonly vmId: string;
  /** Lent to one proxy after another; nobody takes it while `isLost`. */
  readonly laneFd: number;
  /** Rejects when the owner is lost before it was ready. */
  readonly ready: Promise<OwnerReady>;
  /** The channel is over and every call has ended; the processes may still be dying. Never rejects. */
  readonly lost: Promise<OwnerEnd>;
  /** Owner and hypervisor are no more, or could not be killed in time. Never rejects. */
  readonly gone: Promise<OwnerEnd>;
  /** Its stderr has ended, which comes by another way than its exit. Whoever inherited it may hold it open. */
  readonly saidAll: Promise<void>;
  readonly health: Health = { owner: "ok", guest: "ok" };
  /** Told when `health` is another. */
  onHealth: () => void = () => undefined;
  /** The guest's end of the traffic lane is open. */
  isTrafficOpen = false;
  /** Told each time that it was opened. */
  onTrafficOpen: () => void = () => undefined;
  /** What the owner could not be confined by, in words; it says so when it is ready. Empty: it is confined. */
  unconfined: readonly string[] = [];
  /** Second walls that this machine does not offer; it is confined without them. */
  notes: readonly string[] = [];
  isLost = false;
  readonly #child: OwnerChild;
  readonly #processes: Processes;
  readonly #peer: Peer;
  readonly #ready: Deferred<OwnerReady> = defer();
  readonly #onProcess: OwnerRunOptions["onProcess"];
  readonly #recorded: OwnerRunOptions["recorded"];
  #hypervisor: { pid: number; birth: string } | null = null;
  #lastWords: OwnerEnd | null = null;
  #isKilled = false;
  #exit: OwnerExit | null = null;

  constructor(options: OwnerRunOptions) {
    const { child, plan } = options;
    this.vmId = plan.vm_id;
    this.laneFd = options.laneFd;
    this.#child = child;
    this.#processes = options.processes;
    this.#onProcess = options.onProcess;
    this.#recorded = options.recorded;
    this.#peer = createPeer({ role: "host", duplex: child.rpc, handlers: this.#handlers() });
    this.ready = this.#ready.promise;
    ignore(this.ready);
    // A child that dies at once breaks its pipes; its exit says so, these errors add nothing.
    child.stdin.on("error", () => undefined);
    child.stderr.on("error", () => undefined);
    child.stdin.end(`${JSON.stringify(plan)}\n`);
    const lines = createLineSplitter(
      LOG_LIMITS.lineBytesMax,
      options.onLogLine,
      new LineGate(options.monotonicMs),
    );
    child.stderr.on("data", (chunk: Buffer) => lines.push(chunk));
    this.saidAll = new Promise((resolve) => {
      child.stderr.on("end", () => {
        lines.end();
        resolve();
      });
    });
    if (child.pid !== null) options.onProcess("owner", child.pid);
    this.lost = this.#watchLoss();
    this.gone = this.#watchEnd();
  }

  get pid(): number | null {
    return this.#child.pid;
  }

  /** Calls and streams under way. */
  get streamCount(): number {
    return this.#peer.streamCount;
  }

  get hypervisorPid(): number | null {
    return this.#hypervisor?.pid ?? null;
  }

  async call<M extends OwnerMethod>(
    method: M,
    params: OwnerParams<M>,
    limits: CallLimits = {},
  ): Promise<OwnerResult<M>> {
    try {
      return parseResult(method, await this.#peer.call(method, params, this.#options(limits)));
    } catch (thrown) {
      throw await this.#explain(method, thrown);
    }
  }

  /** The stream is the caller's to end or reset. */
  async open<M extends OwnerMethod>(
    method: M,
    params: OwnerParams<M>,
    limits: CallLimits = {},
  ): Promise<{ result: OwnerResult<M>; stream: MuxStream }> {
    try {
      const opened = await this.#peer.open(method, params, this.#options(limits));
      try {
        return { result: parseResult(method, opened.result), stream: opened.stream };
      } catch (thrown) {
        opened.stream.reset("protocol_error");
        throw thrown;
      }
    } catch (thrown) {
      throw await this.#explain(method, thrown);
    }
  }

  /** Once it is gone: how the program itself failed, null when it ended in order, said why, or was killed by us. */
  get crash(): string | null {
    if (this.#lastWords !== null || this.#isKilled || this.#exit === null) return null;
    const { code, signal, message } = this.#exit;
    if (code === 0) return null;
    return message ?? (signal === null ? `exit code ${code}` : `signal ${signal}`);
  }

  /** What a broken stream of this owner means to the user. */
  streamFailure(thrown: unknown): Promise<Failure> {
    return this.#explain("stream", thrown);
  }

  /**
   * The same for what was read and is not whole: an owner that ends cuts what it was sending, and is known to have ended
   * a moment later. `otherwise`: it lives.
   */
  async readFailure(thrown: unknown, otherwise: Failure): Promise<Failure> {
    const failure = await this.streamFailure(thrown);
    if (failure.kind === "vm_gone") return failure;
    const isLost = await settledWithin(this.lost, TIMES.ownerExitTimeoutMs);
    return isLost
      ? this.streamFailure(new Failure("peer_lost", "Cannot read on: the owner ended"))
      : otherwise;
  }

  /** Forces the end of owner and hypervisor. Works on frozen ones. Resolves when both are gone. */
  async kill(): Promise<void> {
    // What comes after its own end is tidying up.
    if (!this.isLost) this.#isKilled = true;
    this.#killHypervisor();
    this.#child.kill();
    await this.gone;
  }

  #options(limits: CallLimits) {
    const timeoutMs = limits.timeoutMs === undefined ? TIMES.callTimeoutMs : limits.timeoutMs;
    return {
      ...(timeoutMs === null ? {} : { timeoutMs }),
      ...(limits.signal === undefined ? {} : { signal: limits.signal }),
      ...(limits.trace === undefined ? {} : { trace: limits.trace }),
    };
  }

  async #explain(method: string, thrown: unknown): Promise<Failure> {
    if (thrown instanceof Failure && (thrown.kind === "peer_lost" || thrown.kind === "lane_lost")) {
      // The owner itself may have answered with one of these: then it lives, and only the guest was lost.
      const end = await within(this.lost, TIMES.lostTimeoutMs).catch(() => GUEST_LOST);
      return apiFailure("vm_gone", `Cannot finish the call: the VM is gone (${end.reason ?? "stopped"})`, {
        cause: thrown,
        detail: end.detail,
      });
    }
    return callFailure(method, thrown);
  }

  #handlers() {
    return {
      "owner.ready": async (params: unknown) => {
        const said = SERVICE_METHODS["owner.ready"].params.parse(params);
        this.unconfined = said.unconfined;
        this.notes = said.notes;
        this.#learnHypervisor(said.hypervisor_pid);
        this.#ready.resolve({ state: said.state, hypervisorPid: said.hypervisor_pid });
        return {};
      },
      "owner.health": async (params: unknown) => {
        this.health.guest = SERVICE_METHODS["owner.health"].params.parse(params).guest;
        this.onHealth();
        return {};
      },
      "owner.traffic": async (params: unknown) => {
        this.isTrafficOpen = SERVICE_METHODS["owner.traffic"].params.parse(params).is_open;
        if (this.isTrafficOpen) this.onTrafficOpen();
        return {};
      },
      "owner.gone": async (params: unknown) => {
        const { reason, detail } = SERVICE_METHODS["owner.gone"].params.parse(params);
        this.#lastWords = { reason, detail };
        return {};
      },
    };
  }

  /** A pid that an owner names is killed later only if it is still the process that it was at this moment. */
  #learnHypervisor(pid: number): void {
    const birth = pid > 1 ? this.#processes.birth(pid) : null;
    if (birth === null) return;
    this.#hypervisor = { pid, birth };
    this.#onProcess("hypervisor", pid);
  }

  #killHypervisor(): void {
    if (this.#hypervisor !== null && this.#isHypervisorAlive()) {
      this.#processes.kill(this.#hypervisor.pid, "SIGKILL");
    }
  }

  #isHypervisorAlive(): boolean {
    return (
      this.#hypervisor !== null && this.#processes.birth(this.#hypervisor.pid) === this.#hypervisor.birth
    );
  }

  async #watchLoss(): Promise<OwnerEnd> {
    const exited = this.#child.exited.then((value) => {
      this.#exit = value;
    });
    await Promise.race([this.#peer.ended, exited]);
    // Its last words and its exit code come over different ways: wait a little for the other one.
    const other = this.#exit === null ? exited : this.#peer.ended;
    await settledWithin(other, TIMES.lastWordsTimeoutMs);
    this.isLost = true;
    this.#peer.close();
    const end = this.#lastWords ?? this.#unsaidEnd(this.#exit);
    this.#ready.reject(
      new Failure(end.reason ?? "owner_lost", "Cannot start the VM: its owner ended", { detail: end.detail }),
    );
    return end;
  }

  #unsaidEnd(exit: OwnerExit | null): OwnerEnd {
    const how = exit === null ? "its channel ended" : howOf(exit);
    const step = LAUNCH_STEPS[exit?.code ?? 0];
    if (step !== undefined && !this.#isKilled) {
      const reason = step === "landlock" ? "confinement_refused" : "owner_lost";
      return { reason, detail: `The owner's launcher failed at its step "${step}": ${how}` };
    }
    return { reason: this.#isKilled ? null : "owner_lost", detail: `The owner ended: ${how}` };
  }

  async #watchEnd(): Promise<OwnerEnd> {
    const end = await this.lost;
    if (!(await settledWithin(this.#child.exited, TIMES.ownerExitTimeoutMs))) this.#child.kill();
    await settledWithin(this.#child.exited, TIMES.killTimeoutMs);
    this.#killHypervisor();
    const deadline = performance.now() + TIMES.killTimeoutMs;
    while (this.#isHypervisorAlive() && performance.now() < deadline) await pause(5);
    await this.#recorded();
    return end;
  }
}

function howOf({ code, signal, message }: OwnerExit): string {
  return message ?? `exit code ${code ?? "none"}, signal ${signal ?? "none"}`;
}

function parseResult<M extends OwnerMethod>(method: M, result: unknown): OwnerResult<M> {
  const parsed = OWNER_METHODS[method].result.safeParse(result);
  assert(parsed.success, `an owner answered ${method} in another shape`);
  return parsed.data as OwnerResult<M>;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
