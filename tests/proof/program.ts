import { spawn } from "node:child_process";
import { type ClientHome, PROGRAMS, type ProgramName } from "./clients.ts";

export interface ProgramEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly ms: number;
}

export interface ProgramOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly timeoutMs?: number;
  /** Kills the program alone, as a crash would: what it started must see to itself. */
  readonly crash?: AbortSignal;
}

/**
 * Runs somebody else's program to its end, in a process group of its own. One that does not end in time is killed
 * with its group and fails by name, with what it said.
 */
export function runProgram(
  name: ProgramName,
  args: readonly string[],
  home: ClientHome,
  options: ProgramOptions = {},
): Promise<ProgramEnd> {
  const started = performance.now();
  const timeoutMs = options.timeoutMs ?? 60_000;
  const [command, ...first] = PROGRAMS[name];
  const child = spawn(command, [...first, ...args], {
    env: { ...home.env, ...options.env },
    cwd: options.cwd ?? home.path,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  const stdout = collect(child.stdout);
  const stderr = collect(child.stderr);
  options.crash?.addEventListener("abort", () => child.kill("SIGKILL"), { once: true });
  return new Promise((done, fail) => {
    const deadline = setTimeout(() => {
      fail(new Error(`${name} did not end in ${timeoutMs} ms\nstdout: ${stdout()}\nstderr: ${stderr()}`));
      const lives = child.exitCode === null && child.signalCode === null;
      if (child.pid !== undefined && lives) process.kill(-child.pid, "SIGKILL");
    }, timeoutMs);
    child.on("error", (cause) => {
      clearTimeout(deadline);
      fail(cause);
    });
    child.on("close", (code) => {
      clearTimeout(deadline);
      done({ code, stdout: stdout(), stderr: stderr(), ms: performance.now() - started });
    });
  });
}

function collect(stream: NodeJS.ReadableStream): () => string {
  const chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  return () => Buffer.concat(chunks).toString("utf8");
}
