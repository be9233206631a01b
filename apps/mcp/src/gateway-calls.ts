import { createNodeClient } from "@capsem/sdk/node";
import type { Calls } from "./attempt.ts";
import { clientName } from "./client-name.ts";
import { CLIENT_NAMES_MAX } from "./limits.ts";
import type { TokenSource } from "./token.ts";

/**
 * Calls over the gateway. A connection is opened by the first one, and a token's file is read again when refused. Behind
 * a bridge there may be several clients: each is recorded by its own name, and those above the limit by none.
 */
export function gatewayCalls(url: string, token: TokenSource): Calls {
  const clients = new Map<string, Calls>();
  const nameless = clientName(undefined);
  const clientOf = (name: string): Calls => {
    const known = clients.get(name);
    if (known !== undefined) return known;
    // One place is kept for the nameless.
    if (name !== nameless && clients.size >= CLIENT_NAMES_MAX) return clientOf(nameless);
    const made = createNodeClient({ url, ...token, clientName: name }) as Calls;
    clients.set(name, made);
    return made;
  };
  return { operation: (route, name = nameless) => clientOf(name).operation(route) };
}
