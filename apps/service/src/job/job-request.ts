import { apiFailure, checkEnv, JOB_LIMITS, type OwnerParams } from "@capsem/api";

/** What exec, run and stream have in common. */
export interface Command {
  readonly command?: string | undefined;
  readonly argv?: string[] | undefined;
  readonly user?: "user" | "root" | undefined;
  readonly cwd?: string | undefined;
  readonly env?: Record<string, string> | undefined;
  readonly timeout_secs?: number | undefined;
}

export interface JobExtras {
  readonly stdin: boolean;
  readonly terminal?: { cols: number; rows: number } | undefined;
  /** The requester's own deadline, which bounds the job too. */
  readonly timeLeftMs?: number | null;
}

/** Refuses what no guest could be told. It is no act then, so it is not judged either. */
export function checkCommand(asked: Command): void {
  const problem = checkEnv(asked.env ?? {});
  if (problem !== null) throw apiFailure("invalid_input", `Cannot set the environment: ${problem}`);
  checkJobSize(asked);
}

export function jobStartParams(job: string, asked: Command, extras: JobExtras): OwnerParams<"job.start"> {
  checkCommand(asked);
  const limits = [
    asked.timeout_secs === undefined ? null : asked.timeout_secs * 1000,
    extras.timeLeftMs ?? null,
  ];
  const limitMs = limits.filter((limit) => limit !== null);
  return {
    job,
    ...(asked.command === undefined ? {} : { command: asked.command }),
    ...(asked.argv === undefined ? {} : { argv: asked.argv }),
    ...(asked.user === undefined ? {} : { user: asked.user }),
    ...(asked.cwd === undefined ? {} : { cwd: asked.cwd }),
    ...(asked.env === undefined
      ? {}
      : { env: Object.entries(asked.env).map(([key, value]) => `${key}=${value}`) }),
    stdin: extras.stdin,
    ...(limitMs.length === 0 ? {} : { time_left_ms: Math.ceil(Math.min(...limitMs)) }),
    ...(extras.terminal === undefined ? {} : { terminal: extras.terminal }),
  };
}

/** A job's start is one control message: what does not fit goes by stdin, a file, or the VM's own environment. */
function checkJobSize({ command, argv, env }: Command): void {
  const bytesOf = (texts: readonly string[]) =>
    texts.reduce((sum, text) => sum + Buffer.byteLength(text) + 5, 0);
  const commandBytes = bytesOf(command === undefined ? (argv ?? []) : [command]);
  if (commandBytes > JOB_LIMITS.commandBytesMax) {
    throw apiFailure(
      "too_large",
      `Cannot start a job: its command is ${commandBytes} bytes, limit ${JOB_LIMITS.commandBytesMax}; send it by stdin (bash -s) or in a file`,
    );
  }
  const wholeBytes =
    commandBytes + bytesOf(Object.entries(env ?? {}).map(([key, value]) => `${key}=${value}`));
  if (wholeBytes > JOB_LIMITS.startBytesMax) {
    throw apiFailure(
      "too_large",
      `Cannot start a job: command and environment are ${wholeBytes} bytes, limit ${JOB_LIMITS.startBytesMax}; give the environment when the VM is created, or in a file`,
    );
  }
}
