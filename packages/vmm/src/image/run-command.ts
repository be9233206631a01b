import { spawn } from "node:child_process";
import { Failure } from "@capsem/base";
import { imageFailure } from "./error.ts";
import { ERROR_TAIL_BYTES_MAX, OUTPUT_BYTES_MAX, STOP_TIMEOUT_MS } from "./limits.ts";

export interface Command {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly cwd?: string;
  readonly signal?: AbortSignal | undefined;
  /** Called with every full line of standard error, as it comes. */
  readonly onLine?: (line: string) => void;
}

export interface CommandOutput {
  /** Exit status; 128 + n after signal n, as a shell counts. */
  readonly code: number;
  readonly stdout: string;
  /** The last part of standard error. */
  readonly stderrTail: string;
}

/**
 * Runs a program to its end. It leads a process group of its own: on a time limit or an abort the whole group
 * gets SIGTERM, so that it can unmount and remove what it made, and SIGKILL after that. It also gets SIGTERM
 * when we die (setpriv), so that no build goes on without its builder. Resolves for every exit status;
 * throws `cancelled`, `timeout` or `image_tool_missing`, always after the child is gone.
 */
export function runCommand(command: Command): Promise<CommandOutput> {
  return new Promise((resolve, reject) => {
    if (command.signal?.aborted === true) {
      reject(cancelled(command));
      return;
    }
    const child = spawn("setpriv", ["--pdeathsig", "TERM", "--", command.program, ...command.args], {
      cwd: command.cwd,
      env: command.env,
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const output = collectOutput(command, child.stdout, child.stderr);
    let failure: Error | undefined;
    let killTimer: NodeJS.Timeout | undefined;

    const stop = (reason: Error): void => {
      if (failure !== undefined) return;
      failure = reason;
      killGroup(child.pid, "SIGTERM");
      killTimer = setTimeout(() => killGroup(child.pid, "SIGKILL"), STOP_TIMEOUT_MS);
    };
    const onAbort = (): void => stop(cancelled(command));
    const limit = setTimeout(() => {
      stop(new Failure("timeout", `Cannot finish ${command.program}: no end after ${command.timeoutMs} ms`));
    }, command.timeoutMs);
    const settle = (): void => {
      clearTimeout(limit);
      clearTimeout(killTimer);
      command.signal?.removeEventListener("abort", onAbort);
    };

    command.signal?.addEventListener("abort", onAbort, { once: true });
    child.once("error", (cause) => {
      settle();
      reject(
        imageFailure("image_tool_missing", `Cannot start ${command.program}: ${cause.message}`, { cause }),
      );
    });
    child.once("close", (code, signal) => {
      settle();
      // A program that failed may leave children behind; they hold our scratch folder.
      killGroup(child.pid, "SIGKILL");
      if (failure !== undefined) reject(failure);
      else resolve({ code: code ?? 128 + signalNumber(signal), ...output() });
    });
  });
}

function cancelled(command: Command): Failure {
  return new Failure("cancelled", `Stopped ${command.program}: the build was cancelled`);
}

function collectOutput(
  command: Command,
  stdout: NodeJS.ReadableStream,
  stderr: NodeJS.ReadableStream,
): () => { stdout: string; stderrTail: string } {
  let kept = "";
  let tail = "";
  let line = "";
  stdout.setEncoding("utf8");
  stderr.setEncoding("utf8");
  stdout.on("data", (text: string) => {
    if (kept.length < OUTPUT_BYTES_MAX) kept += text.slice(0, OUTPUT_BYTES_MAX - kept.length);
  });
  stderr.on("data", (text: string) => {
    tail = (tail + text).slice(-ERROR_TAIL_BYTES_MAX);
    const lines = (line + text).split(/[\r\n]/);
    line = (lines.pop() ?? "").slice(-ERROR_TAIL_BYTES_MAX);
    for (const each of lines) if (each !== "") command.onLine?.(each);
  });
  return () => ({ stdout: kept, stderrTail: tail });
}

function killGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch (error) {
    // The group is gone, which is what was wanted.
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function signalNumber(signal: NodeJS.Signals | null): number {
  return signal === "SIGKILL" ? 9 : signal === "SIGTERM" ? 15 : signal === "SIGSEGV" ? 11 : 0;
}
