export interface Option {
  readonly name: string;
  readonly short?: string;
  /** What stands for its value in the help; absent for a flag. */
  readonly value?: string;
  readonly repeats?: true;
  /** All that its value may be. */
  readonly choices?: readonly string[];
  readonly summary: string;
}

/** Of every command. */
export const COMMON_OPTIONS: readonly Option[] = [
  { name: "json", summary: "Print one JSON object, errors too" },
  { name: "help", short: "h", summary: "Show this help" },
];

export const JOB_OPTIONS: readonly Option[] = [
  { name: "env", short: "e", value: "K=V", repeats: true, summary: "Set a variable; K alone takes yours" },
  { name: "timeout", short: "t", value: "SECS", summary: "Kill the command after this time, exit code 124" },
  { name: "user", short: "u", value: "NAME", choices: ["user", "root"], summary: "user (default) or root" },
  { name: "cwd", short: "w", value: "DIR", summary: "Working folder, from /workspace" },
];

export const SIZE_OPTIONS: readonly Option[] = [
  { name: "cpus", value: "N", summary: "Virtual CPUs (default 1)" },
  { name: "memory", short: "m", value: "GIB", summary: "Memory in GiB, steps of 0.25 (default 0.5)" },
];

export const LOG_OPTIONS: readonly Option[] = [
  { name: "tail", value: "N", summary: "Only the last lines" },
  { name: "grep", value: "TEXT", summary: "Only lines with this text" },
];

export const SINCE_OPTIONS: readonly Option[] = [
  { name: "since", value: "TIME", summary: "Not older than this: 30s, 10m, 2h, 7d, or an ISO time" },
  { name: "limit", value: "N", summary: "At most so many (default 20, up to 100)" },
];
