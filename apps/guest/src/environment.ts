import { WIRE_LIMITS } from "@capsem/wire";
import type { Account } from "./accounts.ts";
import { guestFailure } from "./guest-error.ts";

export type Environment = ReadonlyMap<string, string>;

/** Names that change how a shell or the loader starts a program (wire spec). The host refuses them too. */
const REFUSED_NAMES = new Set([
  "IFS",
  "BASH_ENV",
  "ENV",
  "CDPATH",
  "GLOBIGNORE",
  "SHELLOPTS",
  "BASHOPTS",
  "PROMPT_COMMAND",
  "PS4",
]);
const REFUSED_PREFIXES = ["LD_", "BASH_FUNC_"];

/** Parses KEY=VALUE entries; a later one wins. Messages name keys, never values. */
export function parseEnvironment(entries: readonly string[]): Environment {
  const env = new Map<string, string>();
  let bytes = 0;
  for (const entry of entries) {
    const at = entry.indexOf("=");
    if (at <= 0) throw guestFailure("invalid_input", "Cannot set environment: an entry has no name");
    const key = entry.slice(0, at);
    const length = Buffer.byteLength(entry);
    bytes += length;
    if (entry.includes("\0")) throw refusal(key, "it holds a NUL");
    if (Buffer.byteLength(key) > WIRE_LIMITS.envKeyBytesMax) throw refusal(key, "its name is too long");
    if (length > WIRE_LIMITS.envEntryBytesMax) throw refusal(key, "it is too large");
    if (REFUSED_NAMES.has(key) || REFUSED_PREFIXES.some((prefix) => key.startsWith(prefix))) {
      throw refusal(key, "this name is not allowed");
    }
    env.set(key, entry.slice(at + 1));
  }
  if (bytes > WIRE_LIMITS.envBytesMax) {
    throw guestFailure("too_large", `Cannot set environment: ${bytes} bytes together`);
  }
  return env;
}

/** What a program of this account starts with: ours, then the VM's, then the job's. */
export function composeEnvironment(
  account: Account,
  isTerminal: boolean,
  ...layers: Environment[]
): string[] {
  const env = new Map<string, string>([
    ["PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
    ["HOME", account.home],
    ["USER", account.name],
    ["LOGNAME", account.name],
    ["SHELL", account.shell],
    ["LANG", "C.UTF-8"],
  ]);
  if (isTerminal) env.set("TERM", "xterm-256color");
  for (const layer of layers) for (const [key, value] of layer) env.set(key, value);
  return [...env].map(([key, value]) => `${key}=${value}`);
}

function refusal(key: string, why: string): Error {
  return guestFailure("invalid_input", `Cannot set environment entry "${key.slice(0, 64)}": ${why}`);
}
