import { type Deferred, defer, Failure, messageOf, within } from "@capsem/base";
import { type HostBody, type MuxStream, readJobChunks } from "@capsem/wire";
import type { Cgroup } from "./cgroup.ts";
import type { Gate } from "./gate.ts";
import { guestFailure, startFailure } from "./guest-error.ts";
import { HELPER_LIMITS, type HelperReport } from "./helper-protocol.ts";
import { JobOutput } from "./job-output.ts";
import { GUEST_LIMITS } from "./limits.ts";
import type { Zygote } from "./zygote.ts";
import type { ZygotePool } from "./zygote-pool.ts";

const SIGKILL = 9;
const RESIZE = "resize ";

export interface JobPlan {
  readonly job: string;
  /** The encoded request for the helper, and what its errors are told with. */
  readonly request: Uint8Array;
  readonly program: string;
  readonly cwd: string;
  readonly cgroup: Cgroup;
  readonly stdin: boolean;
  readonly timeLeftMs: number | undefined;
}

export interface JobEnd {
  readonly exitCode?: number;
  readonly signal?: number;
  readonly timedOut: boolean;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
}

/** One command from its request to the end of its own process. */
export class Job {
  readonly plan: JobPlan;
  readonly output: JobOutput;
  readonly #note: (what: string) => void;
  #zygote: Zygote | undefined;
  /** Resolves when stdin can be fed; undefined when there is nothing to feed any more. */
  readonly #stdin: Deferred<Zygote | undefined> = defer();
  /** Lines for the helper from before it had its request. */
  #early: string[] = [];
  #timer: NodeJS.Timeout | undefined;
  #timedOut = false;

  constructor(plan: JobPlan, gate: Gate, nowMs: () => number, note: (what: string) => void) {
    this.plan = plan;
    this.#note = note;
    this.output = new JobOutput(gate, nowMs, GUEST_LIMITS.rendezvousTimeoutMs);
    if (plan.timeLeftMs !== undefined) {
      this.#timer = setTimeout(() => this.#timeOut(), Math.min(plan.timeLeftMs, 2_147_483_647));
    }
  }

  /** The host's stream of this job: output leaves on it, stdin comes from it. */
  attach(stream: MuxStream): void {
    this.output.attach(stream);
    this.#feed(stream).catch((error: unknown) => {
      if (!(error instanceof Failure)) throw error;
      // Reset: stdin stays open, as the host may attach again.
      stream.reset("cancelled");
    });
  }

  signal(signal: number): void {
    this.#say(`kill ${signal}\n`);
  }

  resize(size: HostBody<"job_resize">["terminal"]): void {
    const bounded = (side: number) => Math.min(side, HELPER_LIMITS.terminalSizeMax);
    this.#say(`${RESIZE}${bounded(size.cols)} ${bounded(size.rows)}\n`);
  }

  /** Ends it with all that lives in its cgroup. */
  killTree(): void {
    this.plan.cgroup.kill();
    this.signal(SIGKILL);
  }

  /**
   * Runs it with a helper that it closes. Resolves when the job's own process has ended and all of its output
   * was handed over. Throws a guest Failure when it never started.
   */
  async run(pool: Pick<ZygotePool, "request">, onStarted: () => void): Promise<JobEnd> {
    let zygote: Zygote | undefined;
    let isHeld = false;
    try {
      this.plan.cgroup.create();
      zygote = await pool.request(this.plan.request);
      this.#zygote = zygote;
      for (const line of this.#early.splice(0)) zygote.send(line);
      if (!this.plan.stdin) zygote.stdin.end();
      this.#stdin.resolve(this.plan.stdin ? zygote : undefined);
      await this.#started(zygote);
      onStarted();
      const moving = Promise.all([
        this.output.pump(zygote.stdout, "stdout"),
        this.output.pump(zygote.stderr, "stderr"),
      ]);
      const last = await this.#last(zygote);
      // How long the host takes to read the rest is not the program's time.
      clearTimeout(this.#timer);
      await moving;
      isHeld = last !== null && "held" in last && last.held;
      return this.#end(last);
    } finally {
      clearTimeout(this.#timer);
      this.#zygote = undefined;
      this.#stdin.resolve(undefined);
      // A helper that has said its last word ends by itself: whoever waits for the answer comes first.
      if (isHeld) zygote?.stdin.destroy();
      else setImmediate(() => zygote?.close());
    }
  }

  /** The job will not run: whoever waits for its stream learns it. */
  refuse(): void {
    clearTimeout(this.#timer);
    this.#stdin.resolve(undefined);
    this.output.refuse();
  }

  async #started(zygote: Zygote): Promise<void> {
    const { program, cwd } = this.plan;
    const report = await within(zygote.reports.report(), GUEST_LIMITS.jobStartTimeoutMs, () =>
      guestFailure("internal", "Cannot start job: the helper did not answer"),
    );
    if (report === null) throw guestFailure("internal", "Cannot start job: the helper ended");
    if (report.kind === "error") throw startFailure(report, program, cwd);
    if (report.kind !== "started")
      throw guestFailure("internal", `Cannot start job: ${report.kind} came first`);
  }

  /** Null when the helper died, or said what it may not say: the program was killed with it. */
  async #last(zygote: Zygote): Promise<HelperReport | null> {
    try {
      return await zygote.reports.report();
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.#note(messageOf(error));
      return null;
    }
  }

  #end(last: HelperReport | null): JobEnd {
    const counts = {
      // Nothing survives the end of its time: one that exits had done so by itself, and its end was late to be heard.
      timedOut: this.#timedOut && last?.kind !== "exit",
      stdoutBytes: this.output.stdoutBytes,
      stderrBytes: this.output.stderrBytes,
    };
    if (last?.kind === "exit") return { exitCode: last.code, ...counts };
    if (last?.kind === "signal") return { signal: last.signal, ...counts };
    this.#note(last === null ? "the helper ended" : `the helper said ${last.kind}`);
    return { signal: SIGKILL, ...counts };
  }

  async #feed(stream: MuxStream): Promise<void> {
    const zygote = await this.#stdin.promise;
    // What comes after the program closed its stdin is taken and thrown away: the host must not be held up.
    for await (const chunk of readJobChunks(stream, ["stdin"])) await zygote?.feed(chunk.bytes);
    zygote?.stdin.end();
  }

  #timeOut(): void {
    this.#timedOut = true;
    this.killTree();
  }

  #say(line: string): void {
    if (this.#zygote !== undefined) {
      this.#zygote.send(line);
      return;
    }
    // Of one signal one waits, and of the sizes the last.
    const isSame = (other: string) => other === line || (isResize(line) && isResize(other));
    this.#early = [...this.#early.filter((other) => !isSame(other)), line];
  }
}

function isResize(line: string): boolean {
  return line.startsWith(RESIZE);
}
