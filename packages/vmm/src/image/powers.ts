import type { Command, CommandOutput } from "./run-command.ts";

/** The authority that building an image needs. Files are reached through the folders the caller names. */
export interface ImagePowers {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** As Node names it: "x64" or "arm64". */
  readonly arch: string;
  readonly userId: number;
  readonly pid: number;
  run(command: Command): Promise<CommandOutput>;
}
