/** How tools, prompts and resources of many servers share one list. */
import { createHash } from "node:crypto";
import { MCP_LIMITS } from "./limits.ts";

/** Stands between server and tool; a server's name never has it, so the first one splits. */
export const NAME_SEPARATOR = "__";

const LISTABLE = /^[A-Za-z0-9_./-]{1,64}$/;
/** A name that ends like a shortened one is shortened too: so no name is that of another. */
const SHORTENED = /-x[0-9a-f]{16}$/;
const SUFFIX_CHARS = 18;
const URI_PREFIX = "capsem://";

export interface Named {
  readonly server: string;
  /** A tool or a prompt, as its server spells it. */
  readonly name: string;
}

/** Whether clients and models take it as it is. */
export function isListable(name: string): boolean {
  return LISTABLE.test(name);
}

/** In full, however long. */
export function joinName(server: string, name: string): string {
  return `${server}${NAME_SEPARATOR}${name}`;
}

/** Null: it names no server. What it says of a shortened name is no original: look those up in `listedNames`. */
export function splitName(joined: string): Named | null {
  const at = joined.indexOf(NAME_SEPARATOR);
  if (at <= 0 || at + NAME_SEPARATOR.length === joined.length) return null;
  return { server: joined.slice(0, at), name: joined.slice(at + NAME_SEPARATOR.length) };
}

/**
 * The name that clients see: at most 64 of `A-Za-z0-9_./-`. One that does not fit keeps its start and ends with 64 bits of
 * its SHA-256, the same at all times. `salt` gives another suffix, for the case that two are equal.
 */
export function listedName(server: string, name: string, salt = 0): string {
  const joined = joinName(server, name);
  if (salt === 0 && isListable(joined) && !SHORTENED.test(joined)) return joined;
  const digest = createHash("sha256")
    .update(salt === 0 ? joined : `${joined}\0${salt}`)
    .digest("hex");
  const start = joined.replaceAll(/[^A-Za-z0-9_./-]/gu, "_");
  return `${start.slice(0, MCP_LIMITS.listedNameCharsMax - SUFFIX_CHARS)}-x${digest.slice(0, 16)}`;
}

/** Listed names to what they stand for. No two are equal, whatever the servers call their tools. */
export function listedNames<T extends Named>(all: Iterable<T>): Map<string, T> {
  const listed = new Map<string, T>();
  for (const one of all) {
    for (let salt = 0; ; salt += 1) {
      const name = listedName(one.server, one.name, salt);
      const other = listed.get(name);
      if (other === undefined) {
        listed.set(name, one);
        break;
      }
      // A server that lists one name twice has one tool of that name: the first.
      if (other.server === one.server && other.name === one.name) break;
    }
  }
  return listed;
}

/** A URI or a URI template of a server, behind ours: the original keeps its own scheme. */
export function joinUri(server: string, uri: string): string {
  return `${URI_PREFIX}${server}/${uri}`;
}

/** Null: not one of ours. */
export function splitUri(joined: string): { server: string; uri: string } | null {
  if (!joined.startsWith(URI_PREFIX)) return null;
  const slash = joined.indexOf("/", URI_PREFIX.length);
  if (slash <= URI_PREFIX.length || slash + 1 === joined.length) return null;
  return { server: joined.slice(URI_PREFIX.length, slash), uri: joined.slice(slash + 1) };
}
