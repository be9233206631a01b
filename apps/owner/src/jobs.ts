import { mkdirSync } from "node:fs";
import type { OwnerJobEnd, OwnerParams } from "@capsem/api";
import { type Deferred, defer, Failure, ignore, messageOf, within } from "@capsem/base";
import {
  type GuestBody,
  type MuxStream,
  PORTS,
  readJobChunks,
  WIRE_LIMITS,
  writeJobChunks,
} from "@capsem/wire";
import type { Log } from "@capsem/worker";
import type { GuestLink } from "./guest-link.ts";
import { JobSpool } from "./job-spool.ts";
import { OWNER_LIMITS } from "./limits.ts";

const SIGKILL = 9;

export interface Job {
  readonly id: string;
  readonly command: readonly string[];
  readonly startedAt: string;
  endedAt: string | null;
  readonly stream: MuxStream;
  readonly spool: JobSpool;
  received: { stdout: number; stderr: number };
  /** Settled by the guest's `job_done`, then by the output it announced. */
  readonly done: Deferred<OwnerJobEnd>;
  end: OwnerJobEnd | null;
  /** Nothing more will come on the stream. */
  streamOver: boolean;
  readonly outputMoved: Set<() => void>;
}

/** Jobs of one VM: their streams on the bulk lane, kept output, and ends. */
export class Jobs {
  readonly #jobs = new Map<string, Job>();
  readonly #link: GuestLink;
  readonly #folder: string;
  readonly #now: () => number;
  readonly #log: Log;

  constructor(link: GuestLink, folder: string, powers: { now(): number; readonly log: Log }) {
    this.#link = link;
    this.#folder = folder;
    this.#now = powers.now;
    this.#log = powers.log;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  }

  list(): Job[] {
    return [...this.#jobs.values()];
  }

  get(id: string): Job {
    const job = this.#jobs.get(id);
    if (job === undefined)
      throw new Failure("job_not_found", `Cannot find job "${id}": unknown or forgotten`);
    return job;
  }

  async start(params: OwnerParams<"job.start">): Promise<void> {
    if (this.#jobs.has(params.job)) return;
    if (this.list().filter(({ end }) => end === null).length >= WIRE_LIMITS.jobsMax) {
      throw new Failure("quota", `Cannot start a job: ${WIRE_LIMITS.jobsMax} jobs already run in this VM`);
    }
    const stream = this.#link.bulk().open(PORTS.job.number, params.job);
    const job: Job = {
      id: params.job,
      command: params.argv ?? ["bash", "-c", params.command ?? ""],
      startedAt: new Date(this.#now()).toISOString(),
      endedAt: null,
      stream,
      spool: new JobSpool(`${this.#folder}/${params.job}.ring`),
      received: { stdout: 0, stderr: 0 },
      done: defer(),
      end: null,
      streamOver: false,
      outputMoved: new Set(),
    };
    ignore(job.done.promise);
    this.#jobs.set(job.id, job);
    this.#receive(job).catch((cause: unknown) => {
      // A full disk or a broken stream costs the rest of the output, which the end then reports; not the job.
      this.#log("error", "job output lost", { job: job.id, cause: messageOf(cause) });
      job.stream.reset("internal");
    });
    // Before the request: open and end then reach the guest in one piece, and wake it once.
    if (!params.stdin) stream.end();
    try {
      await this.#link.requests.ask("job_start", { ...params });
    } catch (cause) {
      stream.reset("cancelled");
      job.spool.remove();
      this.#jobs.delete(job.id);
      if (cause instanceof Failure && cause.kind === "unresponsive") void this.#killUnheard(job.id);
      throw cause;
    }
    this.#forgetOld();
  }

  /** Nobody knows of it any more, and the guest may begin it yet: this reaches it behind the request to do so. */
  async #killUnheard(id: string): Promise<void> {
    try {
      await this.#link.requests.ask("job_signal", { job: id, signal: SIGKILL, tree: true });
    } catch (thrown) {
      if (thrown instanceof Failure && thrown.kind === "job_not_found") return;
      this.#log("warning", "a job that was given up may run", { job: id, cause: messageOf(thrown) });
    }
  }

  async wait(id: string, signal: AbortSignal): Promise<OwnerJobEnd> {
    return within(this.get(id).done.promise, 2 ** 31 - 1, undefined, signal);
  }

  /** The guest says that a job's own process ended: finished once the announced output has come. */
  async onDone(body: GuestBody<"job_done">): Promise<void> {
    const job = this.#jobs.get(body.job);
    if (job === undefined || job.end !== null) return;
    const complete = () =>
      job.received.stdout >= body.stdout_bytes && job.received.stderr >= body.stderr_bytes;
    if (!complete()) await this.#tail(job, complete);
    this.#finish(job, {
      exit_code: body.exit_code ?? null,
      signal: body.signal ?? null,
      timed_out: body.timed_out,
      out_of_memory: body.out_of_memory ?? null,
      agent_us: body.agent_us,
      stdout_bytes: job.received.stdout,
      stderr_bytes: job.received.stderr,
      // What a reader missed is the reader's to know; this is output that never came.
      truncated: !complete(),
    });
  }

  /** Output that was announced may still be under way. */
  async #tail(job: Job, complete: () => boolean): Promise<void> {
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), OWNER_LIMITS.outputTailTimeoutMs);
    while (!complete() && !limit.signal.aborted && !job.streamOver) await outputMoved(job, limit.signal);
    clearTimeout(timer);
  }

  /** Drops a finished job and its output. */
  forget(id: string): void {
    this.get(id).spool.remove();
    this.#jobs.delete(id);
  }

  /** The guest agent was lost: what ran has no end that we will ever learn. */
  lose(cause: Failure): void {
    for (const job of this.#jobs.values()) {
      if (job.end !== null) continue;
      job.spool.close();
      job.done.reject(cause);
      job.endedAt = new Date(this.#now()).toISOString();
      job.end = {
        exit_code: null,
        signal: null,
        timed_out: false,
        out_of_memory: null,
        agent_us: 0,
        stdout_bytes: job.received.stdout,
        stderr_bytes: job.received.stderr,
        truncated: true,
      };
    }
  }

  async write(id: string, bytes: Uint8Array): Promise<void> {
    const { stream, end } = this.get(id);
    if (end !== null) throw new Failure("wrong_state", `Cannot write to job "${id}": it has ended`);
    await writeJobChunks(stream, "stdin", bytes);
  }

  closeStdin(id: string): void {
    this.get(id).stream.end();
  }

  #finish(job: Job, end: OwnerJobEnd): void {
    if (job.end !== null) return;
    job.end = end;
    job.endedAt = new Date(this.#now()).toISOString();
    job.spool.close();
    job.done.resolve(end);
    // The agent may still drain a background child's output; none of it belongs to the job any more.
    job.stream.reset("cancelled");
    this.#forgetOld();
  }

  async #receive(job: Job): Promise<void> {
    const moved = () => {
      for (const wake of [...job.outputMoved]) wake();
    };
    try {
      for await (const { kind, bytes } of readJobChunks(job.stream, ["stdout", "stderr"])) {
        if (job.spool.closed) continue;
        job.spool.append(kind === "stdout" ? 1 : 2, bytes);
        if (kind === "stdout") job.received.stdout += bytes.length;
        else job.received.stderr += bytes.length;
        moved();
      }
      job.spool.end();
    } finally {
      job.streamOver = true;
      moved();
    }
  }

  /** Bounds what is kept: records by count, output by bytes, the oldest finished first. */
  #forgetOld(): void {
    const finished = this.list().filter(({ end }) => end !== null);
    let bytes = this.list().reduce((sum, { spool }) => sum + spool.keptBytes, 0);
    let count = finished.length;
    for (const job of finished) {
      if (count <= OWNER_LIMITS.finishedJobsMax && bytes <= OWNER_LIMITS.vmOutputBytesMax) return;
      bytes -= job.spool.keptBytes;
      count -= 1;
      job.spool.remove();
      this.#jobs.delete(job.id);
    }
  }
}

function outputMoved(job: Job, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const moved = () => {
      job.outputMoved.delete(moved);
      signal.removeEventListener("abort", moved);
      resolve();
    };
    job.outputMoved.add(moved);
    signal.addEventListener("abort", moved, { once: true });
    if (signal.aborted) moved();
  });
}
