import type { FileEntry, GuestBody, HostBody } from "@capsem/wire";
import { decodeList, type RawEntry } from "./file-entry.ts";
import { parseFindOutput } from "./find-output.ts";
import { guestFailure } from "./guest-error.ts";
import { expectReport, type HelperCall } from "./helper-call.ts";
import { HELPER_LIMITS } from "./helper-protocol.ts";
import { GUEST_LIMITS } from "./limits.ts";
import { absolute } from "./path.ts";
import type { Tool } from "./tool.ts";

interface Listing {
  readonly path: string;
  readonly depth: number;
  readonly entries: readonly RawEntry[];
  readonly madeMs: number;
}

type Page = Pick<GuestBody<"file_answer">, "entries" | "total" | "more">;

/**
 * Directory pages. The kernel gives names in no order and a page needs one, so a directory is read as a whole
 * and sorted by bytes; the pages after the first are cut from what the first one saw, for a while.
 */
export class Listings {
  readonly #call: HelperCall;
  readonly #tool: Tool;
  readonly #monotonicMs: () => number;
  #last: Listing | undefined;

  constructor(call: HelperCall, tool: Tool, monotonicMs: () => number) {
    this.#call = call;
    this.#tool = tool;
    this.#monotonicMs = monotonicMs;
  }

  async page(body: HostBody<"file_list">): Promise<Page> {
    const listing = (body.offset > 0 ? this.#kept(body) : undefined) ?? (await this.#read(body));
    const entries: FileEntry[] = [];
    let bytes = 0;
    for (const { entry } of listing.entries.slice(body.offset, body.offset + body.limit)) {
      bytes += entryBytes(entry);
      if (bytes > GUEST_LIMITS.listAnswerBytesMax) break;
      entries.push(entry);
    }
    const total = listing.entries.length;
    const more = body.offset + entries.length < total;
    this.#last = more ? listing : undefined;
    return { entries, total, more };
  }

  #kept(body: HostBody<"file_list">): Listing | undefined {
    const last = this.#last;
    if (last === undefined || last.path !== body.path || last.depth !== body.depth) return undefined;
    return this.#monotonicMs() - last.madeMs < GUEST_LIMITS.listKeptMs ? last : undefined;
  }

  async #read(body: HostBody<"file_list">): Promise<Listing> {
    const path = absolute(body.path);
    const entries = body.depth === 1 ? await this.#readOne(path, body.path) : await this.#find(path, body);
    entries.sort((a, b) => Buffer.compare(a.nameBytes, b.nameBytes));
    return { path: body.path, depth: body.depth, entries, madeMs: this.#monotonicMs() };
  }

  async #readOne(path: string, shown: string): Promise<RawEntry[]> {
    const all: RawEntry[] = [];
    for (let cookie = 0, isFirst = true; isFirst || cookie !== 0; isFirst = false) {
      const operation = {
        op: "list",
        path,
        offset: cookie,
        length: HELPER_LIMITS.listPageEntriesMax,
      } as const;
      const page = await this.#call.run(operation, async (zygote) => {
        const { bytes } = await expectReport(zygote, "data", "list", shown);
        return decodeList(await zygote.reports.bytes(bytes));
      });
      all.push(...page.entries);
      if (all.length > GUEST_LIMITS.listEntriesMax) throw tooMany(shown);
      cookie = page.next;
    }
    return all;
  }

  /** Deeper listings are one run of `find`, not one helper a directory. */
  async #find(path: string, body: HostBody<"file_list">): Promise<RawEntry[]> {
    const depth = String(body.depth);
    const format = "%y\\t%m\\t%U\\t%G\\t%s\\t%T@\\t%P\\0%l\\0";
    // A trailing slash: a link to a directory is listed as that directory.
    const args = ["find", `${path}/`, "-mindepth", "1", "-maxdepth", depth, "-printf", format];
    const output = await this.#tool.capture(args, "/", GUEST_LIMITS.findBytesMax);
    if (output.code !== 0 && output.bytes.length === 0) throw output.failure("list", body.path);
    const entries = parseFindOutput(output.bytes, GUEST_LIMITS.listEntriesMax);
    if (entries === undefined) throw tooMany(body.path);
    return entries;
  }
}

function entryBytes(entry: FileEntry): number {
  return 160 + Buffer.byteLength(entry.name) + Buffer.byteLength(entry.target ?? "");
}

function tooMany(path: string): Error {
  const most = GUEST_LIMITS.listEntriesMax;
  return guestFailure("too_large", `Cannot list "${path.slice(0, 256)}": it has more than ${most} entries`);
}
