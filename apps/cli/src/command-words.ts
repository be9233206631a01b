import type { Args } from "./args.ts";
import { usageError } from "./cli-error.ts";
import type { Powers } from "./powers.ts";

/** The command as the API takes it: a line for bash, or exact words. */
export function commandOf(args: Args, at: number): { command: string } | { argv: string[] } | null {
  const line = args.words[at];
  if (args.rest !== null && args.rest.length > 0) {
    if (line !== undefined)
      throw usageError("Cannot run command: give one string or words after --, not both");
    return { argv: [...args.rest] };
  }
  if (line === undefined) return null;
  if (line.trim() === "") throw usageError("Cannot run command: it is empty");
  return { command: line };
}

/** K=V sets a value, K alone takes the caller's. */
export function envOf(args: Args, env: Powers["env"]): Record<string, string> | undefined {
  const entries = args.all("env").map((word): [string, string] => {
    const equals = word.indexOf("=");
    if (equals > 0) return [word.slice(0, equals), word.slice(equals + 1)];
    if (equals === 0 || word === "") throw usageError("Cannot use --env: the variable has no name");
    const value = env[word];
    if (value === undefined) throw usageError(`Cannot use --env ${word}: it is not set here`);
    return [word, value];
  });
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

export interface JobOptions {
  env?: Record<string, string>;
  timeout_secs?: number;
  user?: "user" | "root";
  cwd?: string;
}

export function jobOptionsOf(args: Args, env: Powers["env"]): JobOptions {
  const options: JobOptions = {};
  const variables = envOf(args, env);
  const timeoutSecs = args.number("timeout", 0.001, 86_400);
  const user = args.choice("user", ["user", "root"]);
  const cwd = args.text("cwd");
  if (variables !== undefined) options.env = variables;
  if (timeoutSecs !== undefined) options.timeout_secs = timeoutSecs;
  if (user !== undefined) options.user = user;
  if (cwd !== undefined) options.cwd = cwd;
  return options;
}
