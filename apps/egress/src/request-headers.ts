import { HOP_BY_HOP, type HttpHeader } from "@capsem/net";

/** Set by whoever dials: of the address that was admitted, and of the body as it is. */
const OURS: ReadonlySet<string> = new Set(["host", "content-length"]);

/**
 * What goes out, as names and values in turn: what the caller asked for, without what is about the connection, and over
 * it what the service lent. The caller's own spelling and order stay.
 */
export function outgoing(
  asked: readonly HttpHeader[],
  lent: readonly HttpHeader[],
  hasSecrets: boolean,
): string[] {
  const out: string[] = [];
  const replaced = new Set(lent.map(([name]) => name.toLowerCase()));
  // What comes back has to be readable where a secret may be in it.
  if (hasSecrets) replaced.add("accept-encoding");
  const named = namedByConnection(asked);
  for (const [name, value] of asked) {
    const lower = name.toLowerCase();
    if (HOP_BY_HOP.has(lower) || OURS.has(lower) || replaced.has(lower) || named?.has(lower) === true)
      continue;
    out.push(name, value);
  }
  if (hasSecrets) out.push("accept-encoding", "identity");
  for (const [name, value] of lent) {
    const lower = name.toLowerCase();
    if (!HOP_BY_HOP.has(lower) && !OURS.has(lower)) out.push(name, value);
  }
  return out;
}

/** `connection: x-mine` makes x-mine one of this connection alone. */
function namedByConnection(headers: readonly HttpHeader[]): ReadonlySet<string> | null {
  let named: Set<string> | null = null;
  for (const [name, value] of headers) {
    if (name.length !== 10 || name.toLowerCase() !== "connection") continue;
    named ??= new Set();
    for (const each of value.split(",")) named.add(each.trim().toLowerCase());
  }
  return named;
}
