import { CapsemError } from "./error.ts";
import { CLIENT_NAME_CHARS_MAX } from "./limits.ts";
import type { Transport } from "./transport.ts";
import { VERSION } from "./version.ts";

export const CLIENT_HEADER = "x-capsem-client";

export interface ClientNameOptions {
  /** What this program calls itself, recorded with every act: `tool/1.2.3`, printable ASCII. Default `@capsem/sdk/VERSION`. */
  readonly clientName?: string;
}

/** The same transport, with the client's name on every request and, where the runtime can, on every stream. */
export function named(inner: Transport, { clientName }: ClientNameOptions): Transport {
  const name = { [CLIENT_HEADER]: checkClientName(clientName ?? `@capsem/sdk/${VERSION}`) };
  return {
    request: (method, path, options) =>
      inner.request(method, path, { ...options, headers: { ...options.headers, ...name } }),
    socket: (path, protocols, options) =>
      inner.socket(path, protocols, { ...options, headers: { ...options.headers, ...name } }),
    close: () => inner.close(),
  };
}

/** It becomes a header's value and a line of the ledger. */
function checkClientName(name: unknown): string {
  if (typeof name === "string" && name.length <= CLIENT_NAME_CHARS_MAX && /^[!-~]([ -~]*[!-~])?$/.test(name))
    return name;
  throw new CapsemError(
    "invalid_input",
    `Cannot create client: clientName is not 1 to ${CLIENT_NAME_CHARS_MAX} printable ASCII characters`,
  );
}
