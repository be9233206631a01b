import { utf8 } from "@capsem/base";

/** Environment names that a client may not set (wire spec): they change how shells and loaders behave. */
const REFUSED = [
  /^LD_/,
  /^IFS$/,
  /^BASH_ENV$/,
  /^ENV$/,
  /^CDPATH$/,
  /^GLOBIGNORE$/,
  /^SHELLOPTS$/,
  /^BASHOPTS$/,
  /^PROMPT_COMMAND$/,
  /^PS4$/,
  /^BASH_FUNC_/,
] as const;

const KEY_BYTES_MAX = 256;
const ENTRY_BYTES_MAX = 131_071;
const ALL_BYTES_MAX = 1_048_576;

/** Null when the environment is good, else what is wrong with it. Values are never part of the text. */
export function checkEnv(env: Readonly<Record<string, string>>): string | null {
  let total = 0;
  for (const [key, value] of Object.entries(env)) {
    const shown = JSON.stringify(key.slice(0, 64));
    if (key === "" || key.includes("=") || key.includes("\0"))
      return `name ${shown} is empty or has = or NUL`;
    if (value.includes("\0")) return `value of ${shown} has NUL`;
    if (REFUSED.some((pattern) => pattern.test(key))) return `name ${shown} is not allowed`;
    const keyBytes = utf8(key).length;
    const bytes = keyBytes + 1 + utf8(value).length;
    if (keyBytes > KEY_BYTES_MAX) return `name ${shown} is ${keyBytes} bytes, limit ${KEY_BYTES_MAX}`;
    if (bytes > ENTRY_BYTES_MAX) return `${shown} is ${bytes} bytes, limit ${ENTRY_BYTES_MAX}`;
    total += bytes + 1;
  }
  return total > ALL_BYTES_MAX ? `all entries are ${total} bytes, limit ${ALL_BYTES_MAX}` : null;
}
