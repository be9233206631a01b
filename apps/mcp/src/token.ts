import { Failure } from "@capsem/base";
import { TOKEN_BYTES_MAX } from "./limits.ts";
import type { Settings } from "./options.ts";
import type { Powers } from "./powers.ts";

/** Where the calls' token comes from; a file is read again when the gateway refused what was in it. */
export type TokenSource = { readonly tokenFile: string } | { readonly token: string };

/** Fails before anything is served: a client shows the exit of its server, not the first call's error. */
export function checkToken({ tokenFile }: Settings, powers: Powers): TokenSource {
  if (tokenFile !== null) {
    check(read(tokenFile, powers), "the file of --token-file");
    return { tokenFile };
  }
  const token = powers.env.CAPSEM_GATEWAY_TOKEN;
  if (token === undefined)
    throw refusal("Cannot start without a token: give --token-file or set CAPSEM_GATEWAY_TOKEN");
  check(token.trim(), "CAPSEM_GATEWAY_TOKEN");
  return { token: token.trim() };
}

function read(path: string, powers: Powers): string {
  try {
    return powers.readFile(path, TOKEN_BYTES_MAX).trim();
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unexpected error";
    throw refusal(`Cannot read the file of --token-file: ${WHY[code] ?? code}`, cause);
  }
}

const WHY: Readonly<Record<string, string>> = {
  ENOENT: "it does not exist",
  EACCES: "its permissions do not allow it",
  EISDIR: "it is a folder",
};

/** It becomes part of a header: the gateway's tokens are letters and digits alone. */
function check(token: string, where: string): void {
  if (token === "") throw refusal(`Cannot use ${where}: it is empty`);
  if (!/^[A-Za-z0-9]{1,256}$/.test(token))
    throw refusal(`Cannot use ${where}: a token is letters and digits alone`);
}

function refusal(message: string, cause?: unknown): Failure<"usage"> {
  return new Failure("usage", message, { cause });
}
