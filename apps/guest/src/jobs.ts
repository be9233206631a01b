import { discardRest, type GuestBody, type HostBody, type MuxStream } from "@capsem/wire";
import { findAccount } from "./accounts.ts";
import { type Cgroup, RESERVED_NAMES } from "./cgroup.ts";
import { composeEnvironment, parseEnvironment } from "./environment.ts";
import type { Gate } from "./gate.ts";
import { guestFailure } from "./guest-error.ts";
import { encodeHelperRequest, HELPER_FLAGS, HELPER_LIMITS } from "./helper-protocol.ts";
import { Job, type JobEnd, type JobPlan } from "./job.ts";
import { GUEST_LIMITS } from "./limits.ts";
import type { Log } from "./log.ts";
import { absolute } from "./path.ts";
import { WaitingStreams } from "./waiting-streams.ts";
import type { Workload } from "./workload.ts";
import type { ZygotePool } from "./zygote-pool.ts";

const SIGKILL = 9;

export interface JobsOptions {
  readonly workload: Workload;
  readonly pool: ZygotePool;
  readonly gate: Gate;
  readonly log: Log;
  readonly monotonicUs: () => number;
}

/** The jobs of the VM, by id: those that run, and the cgroups that background processes still live in. */
export class Jobs {
  readonly #options: JobsOptions;
  readonly #running = new Map<string, Job>();
  readonly #lingering = new Map<string, Cgroup>();
  readonly #early = new WaitingStreams();
  /** Ended before their stream came, which rides on another lane: it has nothing to carry any more. */
  readonly #endedEarly = new Set<string>();
  #sweepTimer: NodeJS.Timeout | undefined;

  constructor(options: JobsOptions) {
    this.#options = options;
  }

  get runningCount(): number {
    return this.#running.size;
  }

  /** A stream on port 5005. */
  offer(stream: MuxStream): void {
    const job = this.#running.get(stream.tag);
    if (job !== undefined) {
      job.attach(stream);
    } else if (this.#endedEarly.delete(stream.tag)) {
      stream.end();
      void discardRest(stream);
    } else {
      this.#early.put(stream);
    }
  }

  /**
   * Runs one job to its end. `onStarted` is called once its program was executed; a guest Failure means that
   * it never was. `readUs`: when `job_start` was read.
   */
  async run(
    body: HostBody<"job_start">,
    readUs: number,
    onStarted: () => void,
  ): Promise<GuestBody<"job_done">> {
    const { pool } = this.#options;
    let job: Job | undefined;
    try {
      job = this.#create(body);
      const end = await job.run(pool, onStarted);
      await job.output.end();
      return this.#done(job, end, readUs);
    } catch (error) {
      if (job === undefined) this.#early.take(body.job)?.reset("refused");
      else job.refuse();
      throw error;
    } finally {
      if (job !== undefined) this.#forget(job);
      pool.rest();
    }
  }

  signal(body: HostBody<"job_signal">): void {
    if (body.tree && body.signal !== SIGKILL) {
      throw guestFailure("invalid_input", "Cannot signal job: only signal 9 reaches the whole tree");
    }
    const job = this.#running.get(body.job);
    const lingering = this.#lingering.get(body.job);
    if (job !== undefined) {
      if (body.tree) job.killTree();
      else job.signal(body.signal);
    } else if (lingering !== undefined && body.tree) {
      lingering.kill();
    } else {
      throw guestFailure("job_not_found", `Cannot signal job "${body.job}": it does not run`);
    }
  }

  resize(body: HostBody<"job_resize">): void {
    const job = this.#running.get(body.job);
    if (job === undefined) {
      throw guestFailure("job_not_found", `Cannot resize job "${body.job}": it does not run`);
    }
    job.resize(body.terminal);
  }

  #create(body: HostBody<"job_start">): Job {
    if (RESERVED_NAMES.includes(body.job)) {
      throw guestFailure("invalid_input", `Cannot start job "${body.job}": this id is reserved`);
    }
    if (this.#running.has(body.job) || this.#lingering.has(body.job)) {
      throw guestFailure("wrong_state", `Cannot start job "${body.job}": this id was used`);
    }
    if (this.#running.size >= GUEST_LIMITS.jobsMax) {
      throw guestFailure("quota", `Cannot start job: ${GUEST_LIMITS.jobsMax} jobs run already`);
    }
    const nowMs = () => this.#options.monotonicUs() / 1000;
    const job = new Job(this.#plan(body), this.#options.gate, nowMs, (what) => {
      this.#options.log.warn("job ended badly", { job: body.job, what });
    });
    this.#running.set(body.job, job);
    const stream = this.#early.take(body.job);
    if (stream !== undefined) job.attach(stream);
    return job;
  }

  #plan(body: HostBody<"job_start">): JobPlan {
    const { workload } = this.#options;
    const init = workload.initPid();
    const account = findAccount(workload.root, body.user ?? "user");
    const args = commandOf(body);
    const cwd = absolute(body.cwd);
    const { terminal } = body;
    const size = (side: number) => Math.min(side, HELPER_LIMITS.terminalSizeMax);
    const cgroup = workload.work.child(body.job);
    const request = encodeHelperRequest({
      op: "exec",
      init,
      cgroup: cgroup.path,
      args,
      env: composeEnvironment(
        account,
        terminal !== undefined,
        workload.environment,
        parseEnvironment(body.env ?? []),
      ),
      cwd,
      uid: account.uid,
      gid: account.gid,
      groups: account.groups,
      ...(terminal === undefined
        ? {}
        : { flags: HELPER_FLAGS.terminal, cols: size(terminal.cols), rows: size(terminal.rows) }),
    });
    return {
      job: body.job,
      request,
      program: args[0] ?? "",
      cwd,
      cgroup,
      stdin: body.stdin,
      timeLeftMs: body.time_left_ms,
    };
  }

  #done(job: Job, end: JobEnd, readUs: number): GuestBody<"job_done"> {
    const memory = this.#outOfMemory(job.plan.cgroup, end);
    return {
      job: job.plan.job,
      ...(end.exitCode === undefined ? {} : { exit_code: end.exitCode }),
      ...(end.signal === undefined ? {} : { signal: end.signal }),
      timed_out: end.timedOut,
      ...(memory === undefined ? {} : { out_of_memory: memory }),
      stdout_bytes: end.stdoutBytes,
      stderr_bytes: end.stderrBytes,
      agent_us: Math.max(0, Math.round(this.#options.monotonicUs() - readUs)),
    };
  }

  /** A job that survived the kernel killing one of its processes was not ended by it. */
  #outOfMemory(cgroup: Cgroup, end: JobEnd): GuestBody<"job_done">["out_of_memory"] {
    if (end.exitCode === 0 || (cgroup.entry("memory.events", "oom_kill") ?? 0) === 0) return undefined;
    const { workload } = this.#options;
    return {
      limit_bytes: workload.work.count("memory.max") ?? workload.memoryBytesMax,
      peak_bytes: cgroup.count("memory.peak") ?? 0,
    };
  }

  /** The cgroup goes after the answer, which somebody waits for. Until then it can still be killed. */
  #forget(job: Job): void {
    const { job: id, cgroup } = job.plan;
    this.#running.delete(id);
    if (!job.output.hadStream) this.#endedEarly.add(id);
    for (const oldest of this.#endedEarly) {
      if (this.#endedEarly.size <= GUEST_LIMITS.rendezvousWaitingMax) break;
      this.#endedEarly.delete(oldest);
    }
    this.#lingering.set(id, cgroup);
    setImmediate(() => {
      if (cgroup.remove()) this.#lingering.delete(id);
      else this.#sweepLater();
    });
  }

  #sweepLater(): void {
    this.#sweepTimer ??= setTimeout(() => {
      this.#sweepTimer = undefined;
      for (const [id, cgroup] of this.#lingering) if (cgroup.remove()) this.#lingering.delete(id);
      if (this.#lingering.size > 0) this.#sweepLater();
    }, GUEST_LIMITS.cgroupSweepMs);
  }
}

function commandOf(body: HostBody<"job_start">): readonly string[] {
  const { command, argv } = body;
  if ((command === undefined) === (argv === undefined)) {
    throw guestFailure("invalid_input", "Cannot start job: it needs a command or an argument vector");
  }
  return argv ?? ["/bin/bash", "-c", command ?? ""];
}
