import { TOOL_SERVER_METHODS, type ToolPin } from "@capsem/api";
import { Failure, ignore, messageOf, within } from "@capsem/base";
import type { Log } from "@capsem/worker";
import { PROXY_LIMITS } from "../limits.ts";
import { type Clock, type Neighbours, neighbourOf } from "../parts.ts";
import type { ServiceLink } from "../service-link.ts";
import { isBehind } from "./behind.ts";
import { type Catalog, ITEM_KINDS, type ItemKind, readCatalog } from "./catalog.ts";
import type { ServerBook } from "./server-book.ts";

export interface CatalogsOptions {
  readonly book: ServerBook;
  readonly neighbours: Neighbours;
  readonly service: Pick<ServiceLink, "call">;
  readonly clock: Clock;
  readonly log: Log;
  /** What a server offers is no longer what it was. */
  readonly onChanged: (kinds: ReadonlySet<ItemKind>) => void;
}

type Pins = ReadonlyMap<string, ToolPin> | undefined;

interface Entry {
  catalog: Catalog | undefined;
  loading: Promise<Catalog> | undefined;
  failure: { readonly atMs: number; readonly thrown: unknown } | undefined;
  readAtMs: number;
  /** Of the moment when the last look at it began: it was asked what it says since. */
  lookedWith: Pins;
  /** When it was last looked at for newer pins. */
  renewedAtMs: number;
  /** What was compared last, and whether the pins are of something newer. */
  compared: { readonly catalog: Catalog; readonly pins: Pins; readonly isBehind: boolean } | undefined;
  isStale: boolean;
  /** A list went without it. */
  isMissed: boolean;
}

/** What each server offers, as it was last seen. Nobody waits for a server but who needs that one. */
export class Catalogs {
  readonly #options: CatalogsOptions;
  readonly #entries = new Map<string, Entry>();

  constructor(options: CatalogsOptions) {
    this.#options = options;
  }

  /** What is known of it now, of whatever age. */
  peek(server: string): Catalog | undefined {
    return this.#entries.get(server)?.catalog;
  }

  /** The same where it may be used; else `get` is to be waited for. An old one is refreshed behind it. */
  current(server: string): Catalog | undefined {
    const entry = this.#entries.get(server);
    if (entry?.catalog === undefined || this.#isBehind(server, entry, entry.catalog)) return undefined;
    if (this.#isOld(entry)) ignore(this.#load(server, entry, true));
    return entry.catalog;
  }

  /** Why there is nothing known of it, for people. */
  faultOf(server: string): string | undefined {
    const failure = this.#entries.get(server)?.failure;
    return failure === undefined ? undefined : messageOf(failure.thrown);
  }

  /**
   * What is known, or a look at it where nothing is, or where it is known to say something newer; an old one is refreshed
   * behind it. Throws Failure("not_found") for
   * a server that is not declared, and what the look throws.
   */
  async get(server: string): Promise<Catalog> {
    const entry = this.#entry(server);
    const { catalog } = entry;
    if (catalog === undefined) {
      const { failure, loading } = entry;
      if (loading === undefined && failure !== undefined) {
        if (this.#options.clock.monotonicMs() - failure.atMs < PROXY_LIMITS.catalogRetryMs)
          throw failure.thrown;
      }
      return this.#load(server, entry, false);
    }
    if (this.#isBehind(server, entry, catalog)) return this.#renewed(server, entry, catalog);
    if (this.#isOld(entry)) ignore(this.#load(server, entry, true));
    return catalog;
  }

  /** Looks anew, whatever is known. */
  refresh(server: string): Promise<Catalog> {
    const entry = this.#entry(server);
    const next =
      entry.loading === undefined
        ? Promise.resolve()
        : entry.loading.then(
            () => undefined,
            () => undefined,
          );
    return next.then(() => this.#load(server, entry, true));
  }

  /** What is known may no longer hold: the next who asks has it refreshed, and what is known meanwhile. */
  setStale(isExternal: boolean): void {
    for (const [server, entry] of this.#entries) {
      if (this.#options.book.get(server)?.isExternal === isExternal) entry.isStale = true;
    }
  }

  /** A list was given without it: whoever has that list is told when there is one with it. */
  setMissed(server: string): void {
    const entry = this.#entries.get(server);
    if (entry !== undefined) entry.isMissed = true;
  }

  isMissed(server: string): boolean {
    return this.#entries.get(server)?.isMissed === true;
  }

  forget(server: string): void {
    this.#entries.delete(server);
  }

  #entry(server: string): Entry {
    const known = this.#entries.get(server);
    if (known !== undefined) return known;
    if (this.#options.book.get(server) === undefined) {
      throw new Failure("not_found", `Cannot find server "${server}": it is not declared`);
    }
    const entry: Entry = {
      ...{ catalog: undefined, loading: undefined, failure: undefined, readAtMs: 0 },
      ...{ lookedWith: undefined, renewedAtMs: Number.NEGATIVE_INFINITY, compared: undefined },
      ...{ isStale: false, isMissed: false },
    };
    this.#entries.set(server, entry);
    return entry;
  }

  #isOld({ isStale, readAtMs }: Entry): boolean {
    return isStale || this.#options.clock.monotonicMs() - readAtMs > PROXY_LIMITS.catalogAgeMsMax;
  }

  /** A server that says another thing than the pins even so is not asked for the same pins again. */
  #isBehind(server: string, entry: Entry, catalog: Catalog): boolean {
    const { book, clock } = this.#options;
    const pins = book.pinsOf(server);
    if (pins === undefined || book.get(server)?.isExternal !== true) return false;
    if (entry.compared?.catalog !== catalog || entry.compared.pins !== pins) {
      entry.compared = { catalog, pins, isBehind: isBehind(catalog, pins.values()) };
    }
    if (!entry.compared.isBehind) return false;
    if (entry.loading !== undefined) return true;
    if (entry.lookedWith === pins) return false;
    return clock.monotonicMs() - entry.renewedAtMs >= PROXY_LIMITS.catalogRenewMsMin;
  }

  /** What it says now; what is known where that does not come in time, which then is judged by the newer pins. */
  async #renewed(server: string, entry: Entry, known: Catalog): Promise<Catalog> {
    entry.renewedAtMs = this.#options.clock.monotonicMs();
    const isUnderWay = entry.loading !== undefined && entry.lookedWith === this.#options.book.pinsOf(server);
    const look = isUnderWay ? this.#load(server, entry, true) : this.refresh(server);
    const late = () => new Failure("timeout", "it has not answered yet");
    try {
      return await within(look, PROXY_LIMITS.catalogRenewWaitMs, late);
    } catch (thrown) {
      if (thrown instanceof Failure) return known;
      throw thrown;
    }
  }

  #load(server: string, entry: Entry, refresh: boolean): Promise<Catalog> {
    entry.loading ??= this.#read(server, entry, refresh).finally(() => {
      entry.loading = undefined;
    });
    return entry.loading;
  }

  async #read(server: string, entry: Entry, refresh: boolean): Promise<Catalog> {
    const { clock, log } = this.#options;
    // What changes from here on is for the next look.
    entry.isStale = false;
    const before = this.#options.book.pinsOf(server);
    entry.lookedWith = before;
    try {
      const catalog = await this.#look(server, entry, refresh);
      for (const fault of catalog.faults) log("warning", "a server's item is left out", { server, fault });
      if (this.#entries.get(server) !== entry) return catalog;
      const older = entry.catalog;
      entry.catalog = catalog;
      entry.failure = undefined;
      entry.readAtMs = clock.monotonicMs();
      const kinds = changedKinds(older, catalog);
      if (before !== this.#options.book.pinsOf(server)) kinds.add("tools");
      if (kinds.size > 0 && (older !== undefined || entry.isMissed)) this.#options.onChanged(kinds);
      entry.isMissed = false;
      return catalog;
    } catch (thrown) {
      entry.failure = { atMs: clock.monotonicMs(), thrown };
      entry.readAtMs = clock.monotonicMs();
      // It was not heard.
      entry.lookedWith = undefined;
      log("warning", "a server's lists cannot be read", { server, cause: messageOf(thrown) });
      throw thrown;
    }
  }

  /** From memory only where nothing else was known of it: what others have reported meanwhile is newer than that. */
  async #look(server: string, entry: Entry, refresh: boolean): Promise<Catalog> {
    for (let looks = 1; ; looks += 1) {
      const catalog = readCatalog(server, await this.#ask(server, refresh || looks > 1));
      // Of one that was declared anew meanwhile others tell.
      if (this.#entries.get(server) !== entry) return catalog;
      if ((await this.#report(catalog)) || looks >= PROXY_LIMITS.catalogLooksMax) return catalog;
    }
  }

  async #ask(server: string, refresh: boolean) {
    const { neighbours, book } = this.#options;
    const isExternal = book.get(server)?.isExternal ?? true;
    const peer = await neighbourOf(neighbours, isExternal).use();
    const answer = await peer.call(
      "server.catalog",
      { server, refresh },
      { timeoutMs: PROXY_LIMITS.catalogTimeoutMs },
    );
    const parsed = TOOL_SERVER_METHODS["server.catalog"].result.safeParse(answer);
    if (parsed.success) return parsed.data;
    throw new Failure("bad_message", `Cannot read the lists of "${server}": they have another shape`);
  }

  /** False: another's report is newer than this look, so that it is to be made again. */
  async #report({ server, info, reports }: Catalog): Promise<boolean> {
    const { service, book, log } = this.#options;
    try {
      const params = { server, info, tools: reports };
      const { pins } = await service.call("pins.report", params, { timeoutMs: PROXY_LIMITS.reportTimeoutMs });
      book.setPins(server, pins);
    } catch (thrown) {
      if (thrown instanceof Failure && thrown.kind === "outdated") return false;
      log("error", "what a server says of its tools could not be reported", {
        server,
        cause: messageOf(thrown),
      });
    }
    return true;
  }
}

function changedKinds(older: Catalog | undefined, newer: Catalog): Set<ItemKind> {
  const kinds = new Set<ItemKind>();
  for (const kind of ITEM_KINDS) {
    if (older === undefined ? newer[kind].size > 0 : !isSame(older, newer, kind)) kinds.add(kind);
  }
  return kinds;
}

function isSame(older: Catalog, newer: Catalog, kind: ItemKind): boolean {
  if (older[kind].size !== newer[kind].size) return false;
  for (const [key, { text }] of newer[kind]) if (older[kind].get(key)?.text !== text) return false;
  return true;
}
