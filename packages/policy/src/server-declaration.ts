import type { Position } from "./fault.ts";

/** The table of a declared server: `[mcp.servers.NAME]`. */
export const SERVER_TABLE = ["mcp", "servers"] as const;

export const SERVER_TRANSPORTS = ["auto", "http", "sse"] as const;
export const SERVER_PROTOCOLS = ["auto", "legacy", "modern"] as const;

/** Names that are ours: no two things that an agent sees may be called the same. */
export const RESERVED_SERVERS: readonly string[] = ["builtin", "local", "capsem", "capsule", "objects"];

/** A tool server that a person declared, every field with its value. */
export interface ServerDeclaration {
  readonly name: string;
  /** http or https, as it was written. Which addresses may be dialled is not said here. */
  readonly url: string;
  readonly transport: (typeof SERVER_TRANSPORTS)[number];
  readonly protocol: (typeof SERVER_PROTOCOLS)[number];
  readonly isEnabled: boolean;
  /** `HOST:PORT` of private and local addresses that it may be dialled at. */
  readonly grants: readonly string[];
  /** Sent with each request, by the names as written. A value may hold one reference to a credential. */
  readonly headers: ReadonlyMap<string, string>;
  /** Of one call. */
  readonly timeoutSecs: number;
  /** Absent for one that came by a route and not from a file. */
  readonly at: Position | undefined;
}

/** What holds where a declaration says nothing. */
export const USUAL_SERVER = {
  transport: "auto",
  protocol: "auto",
  isEnabled: true,
  grants: [],
  headers: new Map<string, string>(),
  timeoutSecs: 300,
} as const satisfies Partial<ServerDeclaration>;

/** `mcp.servers.NAME`: its table, and the key that a change of it is judged by. */
export function serverKey(name: string): string {
  return [...SERVER_TABLE, name].join(".");
}

/** What stands for a header's value where it must not be known. */
export const HIDDEN_VALUE = "[redacted]";

/** The same declaration for whoever must not know what is sent: headers by name alone. */
export function withoutHeaderValues(server: ServerDeclaration): ServerDeclaration {
  const headers = new Map([...server.headers.keys()].map((name) => [name, HIDDEN_VALUE]));
  return Object.freeze({ ...server, headers });
}
