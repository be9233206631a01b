import { createNodeClient } from "@capsem/sdk/node";
import type { Calls } from "./call-tool.ts";
import type { TokenSource } from "./token.ts";

/** Calls over the gateway. A connection is opened by the first one, and a token's file is read again when refused. */
export function gatewayCalls(url: string, token: TokenSource): Calls {
  return createNodeClient({ url, ...token }) as Calls;
}
