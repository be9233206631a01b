/** Exit codes (design, "Defaults"): a job's own for `run`, `exec` and `shell`, these where there is none. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  timeLimit: 124,
  /** Ours, where the exit code is the job's. */
  ours: 125,
  commandNotExecutable: 126,
  commandNotFound: 127,
  brokenPipe: 141,
} as const;

/** As shells say that a signal ended it. */
export function exitOfSignal(signal: number): number {
  return 128 + signal;
}

export interface JobEnd {
  readonly exit_code: number | null;
  readonly signal: number | null;
  readonly timed_out: boolean;
}

export function exitOfJob(end: JobEnd): number {
  if (end.timed_out) return EXIT.timeLimit;
  if (end.signal !== null) return exitOfSignal(end.signal);
  return end.exit_code ?? EXIT.ours;
}

/** `owner` says whose exit codes the command has. */
export function exitOfFailure(kind: string, owner: "job" | "capsem"): number {
  if (owner === "capsem") return kind === "usage" ? EXIT.usage : EXIT.failed;
  if (kind === "command_not_found") return EXIT.commandNotFound;
  if (kind === "command_not_executable") return EXIT.commandNotExecutable;
  return EXIT.ours;
}
