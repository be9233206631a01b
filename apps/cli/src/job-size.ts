import { JOB_LIMITS } from "@capsem/api/plain";
import { Failure } from "@capsem/base";

/** What a string costs in a control message beside its bytes. */
const HEAD_BYTES = 5;

interface Sized {
  readonly command?: string;
  readonly argv?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Refuses what one job cannot hold before anything is started for it. */
export function checkJobSize({ command, argv, env }: Sized): void {
  const commandBytes = bytesOf(command === undefined ? (argv ?? []) : [command]);
  if (commandBytes > JOB_LIMITS.commandBytesMax)
    throw tooLarge(
      `the command is ${commandBytes} bytes, limit ${JOB_LIMITS.commandBytesMax}: send it by stdin (bash -s < script) or copy a file in`,
    );
  const wholeBytes = commandBytes + envBytesOf(env);
  if (wholeBytes > JOB_LIMITS.startBytesMax)
    throw tooLarge(
      `the command and its variables are ${wholeBytes} bytes, limit ${JOB_LIMITS.startBytesMax}: give variables to the VM (create -e) or copy a file in`,
    );
}

export function envBytesOf(env: Readonly<Record<string, string>> = {}): number {
  return bytesOf(Object.entries(env).map(([key, value]) => `${key}=${value}`));
}

function bytesOf(texts: readonly string[]): number {
  return texts.reduce((sum, text) => sum + Buffer.byteLength(text) + HEAD_BYTES, 0);
}

function tooLarge(what: string): Failure {
  return new Failure("too_large", `Cannot run: ${what}`);
}
