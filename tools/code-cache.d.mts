import type { ChildProcess, IOType } from "node:child_process";

export function writeProgram(out: string, name: string, bundle: string): void;
export function writeLauncher(out: string, name: string, main: string): void;
export function startWarm(
  out: string,
  name: string,
  options: {
    programs: readonly string[];
    args?: readonly string[];
    env?: Readonly<Record<string, string>>;
    stdio?: readonly (IOType | number)[];
    argv0?: string;
    flags?: readonly string[];
  },
): {
  child: ChildProcess;
  ended: Promise<{ code: number | null; text: string }>;
  said: () => string;
};
