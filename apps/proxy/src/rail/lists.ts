import { createHash } from "node:crypto";
import { Failure, messageOf, within } from "@capsem/base";
import type { CallParts } from "../call/call-parts.ts";
import type { Caller } from "../call/caller.ts";
import type { Params } from "../call/params.ts";
import type { Catalog, ItemKind } from "../catalog/catalog.ts";
import type { DeclaredServer } from "../catalog/server-book.ts";
import { PROXY_LIMITS } from "../limits.ts";

/** The member of a result that holds its items. */
const MEMBER: Readonly<Record<ItemKind, string>> = {
  tools: "tools",
  resources: "resources",
  templates: "resourceTemplates",
  prompts: "prompts",
};

/** Servers that a list goes without, in its `_meta`. */
const UNAVAILABLE_KEY = "dev.capsem/unavailable";

interface Gathered {
  readonly texts: readonly string[];
  readonly unavailable: readonly { readonly server: string; readonly reason: string }[];
}

/** Lists over all servers. One that is away, or slow, is named and left out; the others are there. */
export class Lists {
  readonly #parts: CallParts;

  constructor(parts: CallParts) {
    this.#parts = parts;
  }

  /** The result as text. */
  async list(caller: Caller, kind: ItemKind, params: Params): Promise<string> {
    const { texts, unavailable } = await this.#gather(caller, kind);
    const { items, nextCursor } = pageOf(texts, params.cursor);
    const members = [`${JSON.stringify(MEMBER[kind])}:[${items.join(",")}]`];
    if (nextCursor !== undefined) members.push(`"nextCursor":${JSON.stringify(nextCursor)}`);
    if (caller.era === "modern") members.push('"resultType":"complete","ttlMs":0,"cacheScope":"private"');
    if (unavailable.length > 0) members.push(`"_meta":${JSON.stringify({ [UNAVAILABLE_KEY]: unavailable })}`);
    return `{${members.join(",")}}`;
  }

  async #gather(caller: Caller, kind: ItemKind): Promise<Gathered> {
    const { book, views } = this.#parts;
    const servers = [...book.names].flatMap((name) => book.get(name) ?? []);
    const catalogs = await this.#catalogsOf(servers, caller.signal);
    const texts: string[] = [];
    const unavailable: { server: string; reason: string }[] = [];
    for (const server of servers) {
      const catalog = catalogs.get(server.name);
      if (catalog instanceof Failure) unavailable.push({ server: server.name, reason: catalog.message });
      else if (catalog !== undefined) texts.push(...views.of(server, catalog, kind, caller.asker).texts);
    }
    return { texts, unavailable };
  }

  /** All at once, and for those that nobody has seen yet no longer than a list can wait. */
  async #catalogsOf(
    servers: readonly DeclaredServer[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, Catalog | Failure>> {
    const { catalogs } = this.#parts;
    const found = new Map<string, Catalog | Failure>();
    const missing: Promise<void>[] = [];
    for (const { name } of servers) {
      const known = catalogs.current(name);
      if (known !== undefined) found.set(name, known);
      else missing.push(this.#waitFor(name, catalogs.get(name), found, signal));
    }
    await Promise.all(missing);
    if (signal.aborted) throw signal.reason;
    return found;
  }

  async #waitFor(
    name: string,
    asked: Promise<Catalog>,
    found: Map<string, Catalog | Failure>,
    signal: AbortSignal,
  ): Promise<void> {
    const late = () => new Failure("timeout", "it has not answered yet");
    try {
      found.set(name, await within(asked, PROXY_LIMITS.listWaitMs, late, signal));
    } catch (thrown) {
      this.#parts.catalogs.setMissed(name);
      found.set(name, thrown instanceof Failure ? thrown : new Failure("internal", messageOf(thrown)));
    }
  }
}

interface Page {
  readonly items: readonly string[];
  readonly nextCursor: string | undefined;
}

/** A cursor is a place in one list as it was. Throws Failure("invalid_params") for any other. */
function pageOf(texts: readonly string[], cursor: unknown): Page {
  const from = cursor === undefined ? 0 : placeOf(texts, cursor);
  let to = from;
  let bytes = 0;
  while (to < texts.length && to - from < PROXY_LIMITS.pageItemsMax) {
    bytes += texts[to]?.length ?? 0;
    // One that is larger than a page is a page.
    if (bytes > PROXY_LIMITS.pageBytesMax && to > from) break;
    to += 1;
  }
  if (from === 0 && to === texts.length) return { items: texts, nextCursor: undefined };
  const nextCursor = to < texts.length ? `${printOf(texts)}.${to}` : undefined;
  return { items: texts.slice(from, to), nextCursor };
}

function placeOf(texts: readonly string[], cursor: unknown): number {
  const [print, place = "", ...more] = typeof cursor === "string" ? cursor.split(".") : [];
  const from = /^[0-9]{1,6}$/.test(place) ? Number(place) : 0;
  if (more.length > 0 || from < 1 || from >= texts.length || print !== printOf(texts)) {
    throw new Failure(
      "invalid_params",
      "Cannot go on with the list: the cursor is none, or the list has changed",
    );
  }
  return from;
}

function printOf(texts: readonly string[]): string {
  const hash = createHash("sha256");
  for (const text of texts) hash.update(text).update("\n");
  return hash.digest("hex").slice(0, 16);
}
