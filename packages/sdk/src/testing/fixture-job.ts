import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:os";
import type { JobInfo } from "@capsem/api";

export interface FixtureCommand {
  readonly command?: string | undefined;
  readonly argv?: readonly string[] | undefined;
  readonly cwd: string;
  readonly env: Record<string, string>;
  readonly timeoutSecs?: number | undefined;
  readonly stdin: boolean;
}

interface Chunk {
  readonly stream: 1 | 2;
  readonly data: Buffer;
}

/** A command that runs on this host as a process group of its own. */
export class FixtureJob {
  readonly id: string;
  readonly child: ChildProcess;
  readonly chunks: Chunk[] = [];
  readonly done: Promise<void>;
  readonly #words: readonly string[];
  #timedOut = false;
  #code: number | null = null;
  #signal: number | null = null;
  #finished = false;
  #listeners = new Set<() => void>();

  constructor(id: string, request: FixtureCommand) {
    this.id = id;
    this.#words = request.argv ?? ["bash", "--norc", "-c", request.command ?? "bash --norc"];
    const [file = "bash", ...args] = this.#words;
    this.child = spawn(file, args, {
      cwd: request.cwd,
      env: { PATH: process.env.PATH ?? "", ...request.env },
      detached: true,
      stdio: [request.stdin ? "pipe" : "ignore", "pipe", "pipe"],
    });
    this.child.stdin?.on("error", () => undefined);
    this.child.stdout?.on("data", (data: Buffer) => this.#add({ stream: 1, data }));
    this.child.stderr?.on("data", (data: Buffer) => this.#add({ stream: 2, data }));
    const timer =
      request.timeoutSecs === undefined
        ? undefined
        : setTimeout(() => {
            this.#timedOut = true;
            this.kill(9);
          }, request.timeoutSecs * 1000);
    this.done = new Promise((resolve) => {
      this.child.once("error", () => this.#finish(127, null, resolve));
      this.child.once("close", (code, signal) => {
        clearTimeout(timer);
        this.#finish(code, signal === null ? null : constants.signals[signal], resolve);
      });
    });
  }

  kill(signal: number): void {
    if (this.child.pid === undefined || this.#finished) return;
    try {
      process.kill(-this.child.pid, signal);
    } catch {
      this.child.kill(signal);
    }
  }

  get finished(): boolean {
    return this.#finished;
  }

  /** Calls back now and whenever there is more; returns how to stop. */
  watch(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  bytes(stream: 1 | 2): Buffer {
    return Buffer.concat(this.chunks.filter((chunk) => chunk.stream === stream).map((chunk) => chunk.data));
  }

  get end(): Pick<JobInfo, "exit_code" | "signal" | "timed_out" | "out_of_memory"> {
    return { exit_code: this.#code, signal: this.#signal, timed_out: this.#timedOut, out_of_memory: null };
  }

  get info(): JobInfo {
    const stdout = this.bytes(1).length;
    const stderr = this.bytes(2).length;
    return {
      id: this.id,
      state: this.#finished ? "done" : "running",
      ...this.end,
      command: [...this.#words],
      started_at: "2025-01-02T03:04:07.000Z",
      ended_at: this.#finished ? "2025-01-02T03:04:08.000Z" : null,
      stdout_bytes: stdout,
      stderr_bytes: stderr,
      first_offset: 0,
      end_offset: stdout + stderr,
      truncated: false,
    };
  }

  #add(chunk: Chunk): void {
    this.chunks.push(chunk);
    for (const listener of this.#listeners) listener();
  }

  #finish(code: number | null, signal: number | null, resolve: () => void): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#code = code;
    this.#signal = signal;
    for (const listener of this.#listeners) listener();
    resolve();
  }
}
