import type { ServerInForce } from "@capsem/policy";
import type { AskBook } from "../ask/ask-book.ts";
import type { CredentialBook } from "../credential/credential-book.ts";
import { type Handlers, json } from "../http/handler.ts";

export interface AskRouteParts {
  readonly asks: Pick<AskBook, "list" | "resolve">;
  readonly credentials: Pick<CredentialBook, "list" | "inject" | "delete">;
  /** Declared tool servers in force. */
  readonly servers: () => ReadonlyMap<string, Pick<ServerInForce, "headers">>;
}

export function askRoutes({ asks, credentials, servers }: AskRouteParts) {
  return {
    asks: async ({ query }) => json({ asks: asks.list(query.state) }),
    askResolve: async ({ params, body, context }) => json(await asks.resolve(params.id, body, context)),
    credentialInject: async ({ body, context }) => json(await credentials.inject(body, context)),
    credentials: async () => json({ credentials: credentials.list() }),
    credentialDelete: async ({ params, context }) => {
      await credentials.delete(params.ref, context);
      return json({ ok: true as const, servers: serversWith(servers(), params.ref) });
    },
  } satisfies Partial<Handlers>;
}

function serversWith(servers: ReturnType<AskRouteParts["servers"]>, ref: string): string[] {
  return [...servers].flatMap(([name, { headers }]) =>
    [...headers.values()].some((value) => value.includes(ref)) ? [name] : [],
  );
}
