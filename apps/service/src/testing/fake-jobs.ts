import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { OwnerJobEnd, OwnerParams } from "@capsem/api";
import { defer, Failure } from "@capsem/base";
import type { Handler, StreamHandler } from "@capsem/rpc";
import type { MuxStream } from "@capsem/wire";

interface FakeJob {
  readonly id: string;
  readonly command: readonly string[];
  readonly child: ChildProcess;
  /** Typed chunks with their header, in order. */
  readonly chunks: { kind: 1 | 2; bytes: Uint8Array }[];
  readonly counts: { 1: number; 2: number };
  readonly done: ReturnType<typeof defer<OwnerJobEnd>>;
  end: OwnerJobEnd | null;
  terminal: string;
  waiters: (() => void)[];
}

export interface FakeHooks {
  readonly gone: (reason: string) => Promise<void>;
  readonly log: (message: string, source?: "owner" | "console" | "guest") => void;
}

/** Jobs as processes of the host, in a process group each. argv that starts with "!" steers the fake itself. */
export class FakeJobs {
  env: Record<string, string> = {};
  readonly #folder: string;
  readonly #hooks: FakeHooks;
  readonly #jobs = new Map<string, FakeJob>();

  constructor(folder: string, hooks: FakeHooks) {
    this.#folder = join(folder, "guest");
    this.#hooks = hooks;
    mkdirSync(this.#folder, { recursive: true });
  }

  methods(): Record<string, Handler> {
    return {
      "job.start": async (raw) => this.#start(raw as OwnerParams<"job.start">),
      "job.wait": (raw) => this.#get(raw).done.promise,
      "job.signal": async (raw) => this.#signal(raw as OwnerParams<"job.signal">),
      "job.resize": async (raw) => {
        const { terminal } = raw as OwnerParams<"job.resize">;
        this.#get(raw).terminal = `${terminal.cols}x${terminal.rows}`;
        return {};
      },
      "job.list": async () => ({ jobs: [...this.#jobs.values()].map(describe) }),
    };
  }

  streams(): Record<string, StreamHandler> {
    return {
      "job.read": async (raw, { signal }) => {
        const { offset, follow } = raw as OwnerParams<"job.read">;
        const job = this.#get(raw);
        return {
          result: { offset, truncated: false },
          run: (stream) => send(job, offset, follow, stream, signal),
        };
      },
      "job.write": async (raw) => {
        const job = this.#get(raw);
        return { result: {}, run: (stream) => receive(job, stream) };
      },
    };
  }

  killAll(): void {
    for (const job of this.#jobs.values()) killGroup(job.child, "SIGKILL");
  }

  #get(raw: unknown): FakeJob {
    const { job: id } = raw as { job: string };
    const job = this.#jobs.get(id);
    if (job === undefined) throw new Failure("job_not_found", `Cannot find job "${id}": no such job`);
    return job;
  }

  async #start(params: OwnerParams<"job.start">): Promise<Record<string, never>> {
    const argv = params.argv ?? ["bash", "-c", params.command ?? ""];
    const [program = "", ...rest] = argv;
    if (program === "!crash") process.exit(9);
    if (program === "!gone") await this.#hooks.gone(rest[0] ?? "guest_lost");
    if (program === "!log") this.#hooks.log(rest[1] ?? "", rest[0] as "console");
    const [file = "true", ...args] = program.startsWith("!") ? ["true"] : argv;
    const child = spawn(file, args, {
      cwd: this.#folder,
      env: {
        PATH: process.env.PATH ?? "",
        HOME: this.#folder,
        ...this.env,
        ...Object.fromEntries((params.env ?? []).map((entry) => entry.split(/=(.*)/s, 2))),
        COLUMNS: String(params.terminal?.cols ?? 0),
      },
      stdio: [params.stdin ? "pipe" : "ignore", "pipe", "pipe"],
      detached: true,
    });
    const job: FakeJob = {
      id: params.job,
      command: argv,
      child,
      chunks: [],
      counts: { 1: 0, 2: 0 },
      done: defer(),
      end: null,
      terminal: "",
      waiters: [],
    };
    this.#jobs.set(job.id, job);
    await new Promise<void>((resolve, reject) => {
      child.once("spawn", resolve);
      child.once("error", (cause) => {
        this.#jobs.delete(job.id);
        reject(new Failure("command_not_found", `Cannot start "${file}": no such command`, { cause }));
      });
    });
    watch(job, params.time_left_ms);
    return {};
  }

  #signal({ signal, tree, ...raw }: OwnerParams<"job.signal">): Record<string, never> {
    const job = this.#get(raw);
    if (job.end !== null) throw new Failure("wrong_state", "Cannot signal the job: it has ended");
    if (tree) killGroup(job.child, signal);
    else job.child.kill(signal as never);
    return {};
  }
}

function watch(job: FakeJob, timeLeftMs: number | undefined): void {
  let isTimedOut = false;
  const timer =
    timeLeftMs === undefined
      ? undefined
      : setTimeout(() => {
          isTimedOut = true;
          killGroup(job.child, "SIGKILL");
        }, timeLeftMs);
  const take = (kind: 1 | 2) => (bytes: Uint8Array) => {
    job.chunks.push({ kind, bytes });
    job.counts[kind] += bytes.length;
    for (const wake of job.waiters.splice(0)) wake();
  };
  job.child.stdout?.on("data", take(1));
  job.child.stderr?.on("data", take(2));
  job.child.stdin?.on("error", () => undefined);
  job.child.on("close", (code, signal) => {
    clearTimeout(timer);
    job.end = {
      exit_code: code,
      signal: signal === null ? null : (SIGNALS[signal] ?? 0),
      timed_out: isTimedOut,
      out_of_memory: null,
      agent_us: 100,
      stdout_bytes: job.counts[1],
      stderr_bytes: job.counts[2],
      truncated: false,
    };
    job.done.resolve(job.end);
    for (const wake of job.waiters.splice(0)) wake();
  });
}

const SIGNALS: Readonly<Record<string, number>> = { SIGKILL: 9, SIGTERM: 15, SIGINT: 2, SIGHUP: 1 };

async function send(
  job: FakeJob,
  offset: number,
  follow: OwnerParams<"job.read">["follow"],
  stream: MuxStream,
  signal: AbortSignal,
): Promise<void> {
  let at = 0;
  for (let index = 0; ; ) {
    const chunk = job.chunks[index];
    if (chunk !== undefined) {
      const skipped = Math.max(0, offset - at);
      at += chunk.bytes.length;
      index += 1;
      const bytes = chunk.bytes.subarray(Math.min(skipped, chunk.bytes.length));
      if (bytes.length > 0) await stream.write(typed(chunk.kind, bytes));
    } else if (!follow || job.end !== null || signal.aborted) return;
    else {
      await new Promise<void>((resolve) => {
        job.waiters.push(resolve);
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
    }
  }
}

function typed(kind: 1 | 2, bytes: Uint8Array): Uint8Array {
  const header = Buffer.alloc(5);
  header[0] = kind;
  header.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([header, bytes]);
}

async function receive(job: FakeJob, stream: MuxStream): Promise<void> {
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
    const { stdin } = job.child;
    if (stdin === null || stdin.destroyed) continue;
    if (!stdin.write(chunk)) {
      await new Promise<void>((resolve) => {
        stdin.once("drain", resolve);
        stdin.once("close", resolve);
      });
    }
  }
  job.child.stdin?.end();
}

function killGroup(child: ChildProcess, signal: number | "SIGKILL"): void {
  if (child.pid === undefined || child.exitCode !== null) return;
  try {
    process.kill(-child.pid, signal);
  } catch (thrown) {
    if (!(thrown instanceof Error && "code" in thrown && thrown.code === "ESRCH")) throw thrown;
  }
}

function describe(job: FakeJob) {
  return {
    id: job.id,
    state: job.end === null ? "running" : "done",
    exit_code: job.end?.exit_code ?? null,
    signal: job.end?.signal ?? null,
    timed_out: job.end?.timed_out ?? false,
    out_of_memory: null,
    command: [...job.command],
    started_at: new Date().toISOString(),
    ended_at: null,
    stdout_bytes: job.counts[1],
    stderr_bytes: job.counts[2],
    first_offset: 0,
    end_offset: job.counts[1] + job.counts[2],
    truncated: false,
  };
}
