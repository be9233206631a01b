import { apiFailure, BUILTIN_MCP_SERVER, type McpPinInfo, type ToolPin } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { ActContext } from "../act.ts";
import type { ActDraft, Boundary } from "../boundary/parts.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { PIN_LIMITS } from "./limits.ts";
import { lineDifference } from "./line-difference.ts";
import { LookOrder } from "./look-order.ts";
import { PinFiles } from "./pin-files.ts";
import { type PinnedTool, type ServerRecord, stateOf, toolPin } from "./pin-record.ts";
import { checkReport, type PinChange, type PinReport, withReport } from "./pin-report.ts";

export interface PinParts {
  /** Of the home: this user's alone. */
  readonly folder: string;
  readonly boundary: Pick<Boundary, "pass" | "note">;
  readonly policyDigest: () => string;
  /** Declared and enabled, or ours. */
  readonly isServed: (server: string) => boolean;
  /** Pins are others: proxies are to know. */
  readonly onChange: () => void;
  readonly nowMs: () => number;
  readonly log: ServiceLog;
}

export interface Approval {
  /** Absent: all of the server. */
  readonly tool?: string | undefined;
  /** Of the definition that was looked at. */
  readonly hash?: string | undefined;
}

/**
 * What each server's tools were when they were approved, and what they are. The first sight of a server approves it;
 * afterwards a definition that is new or another one waits for a person. Also the catalogue: it has what was last seen.
 */
export class PinBook {
  readonly #parts: PinParts;
  readonly #files: PinFiles;
  readonly #servers = new Map<string, ServerRecord>();
  /** Known, and nothing of them can be read: nothing of them was approved. */
  readonly #unreadable: Set<string>;
  readonly #order = new LookOrder();
  /** Seen again since they were written. */
  readonly #unsaved = new Set<string>();

  private constructor(parts: PinParts, files: PinFiles, unreadable: readonly string[]) {
    this.#parts = parts;
    this.#files = files;
    this.#unreadable = new Set(unreadable);
  }

  static async open(parts: PinParts): Promise<PinBook> {
    const files = new PinFiles(parts.folder, parts.log);
    const { records, unreadable } = await files.load();
    const book = new PinBook(parts, files, unreadable);
    for (const record of records) book.#servers.set(record.server, record);
    return book;
  }

  of(server: string): ServerRecord | null {
    return this.#servers.get(server) ?? null;
  }

  /** Of all servers that are served, as proxies get them. */
  pins(): ToolPin[] {
    const all: ToolPin[] = [];
    let characters = 0;
    for (const { server, tools } of this.#servers.values()) {
      if (!this.#parts.isServed(server)) continue;
      for (const tool of tools) {
        const pin = toolPin(server, tool, characters < PIN_LIMITS.sentCharactersMax);
        characters += pin.approved?.length ?? 0;
        all.push(pin);
      }
    }
    return all;
  }

  /**
   * What a proxy, the reporter, saw of a server. Answers its pins. Throws Failure "outdated" where another saw something
   * else meanwhile, perhaps later: the reporter is to look again. Also "not_found", "too_large", "invalid_input".
   */
  async report(report: PinReport, reporter: object = this): Promise<ToolPin[]> {
    const { server } = report;
    if (!this.#parts.isServed(server))
      throw new Failure("not_found", `Cannot pin tools: no server "${server}"`);
    checkReport(report);
    const known = this.#servers.get(server) ?? (this.#unreadable.has(server) ? nothingOf(server) : null);
    if (known === null && this.#servers.size >= PIN_LIMITS.serversMax) {
      throw new Failure("too_large", `Cannot pin tools: ${this.#servers.size} servers are known`);
    }
    const isOurs = server === BUILTIN_MCP_SERVER;
    const now = new Date(this.#parts.nowMs()).toISOString();
    const { record, changes } = withReport(known, report, { now, isOurs });
    const isOther =
      known === null || changes.length > 0 || JSON.stringify(known.info) !== JSON.stringify(record.info);
    if (isOther && known !== null && !this.#order.isLatest(server, reporter)) {
      this.#order.answered(server, reporter);
      throw new Failure("outdated", `Cannot take the tools of "${server}": another look may be later`, {
        retryable: true,
      });
    }
    this.#servers.set(server, record);
    if (isOther) {
      this.#order.changed(server);
      this.#unsaved.delete(server);
      // What was approved holds when it is on the disk: a restart must not approve anything anew.
      await this.#files.save(record).catch(() => undefined);
      this.#unreadable.delete(server);
    } else this.#unsaved.add(server);
    if (changes.length > 0 && !isOurs) this.#note(server, known === null, changes);
    if (changes.length > 0) this.#parts.onChange();
    this.#order.answered(server, reporter);
    return record.tools.map((tool) => toolPin(server, tool, true));
  }

  info(server: string): McpPinInfo[] {
    return (this.#servers.get(server)?.tools ?? []).map((tool) => infoOf(server, tool));
  }

  /**
   * Approves what tools are now. Throws "mcp_tool_not_found", "wrong_state" where it is not what was looked at any more,
   * and what the boundary throws; of several tools those before it are approved.
   */
  async approve(server: string, { tool, hash }: Approval, context: ActContext): Promise<void> {
    const tools = this.#servers.get(server)?.tools ?? [];
    const wanted =
      tool === undefined
        ? tools.filter((each) => stateOf(each) !== "pinned")
        : tools.filter((each) => each.name === tool);
    if (tool !== undefined && wanted.length === 0) {
      throw apiFailure("mcp_tool_not_found", `Cannot approve "${tool}": server "${server}" has no such tool`);
    }
    for (const each of wanted) {
      if (hash !== undefined && hash !== each.current?.hash) throw notWhatWasSeen(server, each);
      await this.#approveOne(server, each, context);
    }
  }

  /** Everything that is known of it goes. */
  async forget(server: string): Promise<void> {
    this.#unreadable.delete(server);
    if (!this.#servers.delete(server)) return;
    await this.#files.remove(server);
    this.#parts.onChange();
  }

  async close(): Promise<void> {
    for (const server of this.#unsaved) {
      const record = this.#servers.get(server);
      // When it was seen, and no more: its files say what becomes of it.
      if (record !== undefined) void this.#files.save(record).catch(() => undefined);
    }
    this.#unsaved.clear();
    await this.#files.settled();
  }

  async #approveOne(server: string, seen: PinnedTool, context: ActContext): Promise<void> {
    if (stateOf(seen) === "pinned") return;
    const { approved, current } = seen;
    const title = current === null ? "forget the tool, which is gone" : `approve ${wordsOf(seen)} definition`;
    const draft = this.#draft(server, seen, title);
    const bound = () => ({ approved: approved?.hash ?? null, current: current?.hash ?? null });
    const does = "approve the tool";
    await this.#parts.boundary.pass(context, { ...draft, does, bound }, async (permit) => {
      // A person may have been asked meanwhile, and the server may be quick.
      const now = this.#servers.get(server)?.tools.find(({ name }) => name === seen.name);
      if (now === undefined || now.current?.hash !== current?.hash) throw notWhatWasSeen(server, seen);
      const approved_at = new Date(this.#parts.nowMs()).toISOString();
      await this.#replace(server, seen.name, (tool) =>
        current === null ? null : { ...tool, approved: current, approved_at },
      );
      permit.add({ digest_after: this.#parts.policyDigest() });
    });
  }

  /** Holds when it is on the disk: until then proxies go by what was. */
  async #replace(
    server: string,
    name: string,
    change: (tool: PinnedTool) => PinnedTool | null,
  ): Promise<void> {
    const before = this.#servers.get(server);
    if (before === undefined) return;
    const next = withTool(before, name, change);
    this.#servers.set(server, next);
    try {
      await this.#files.save(next);
    } catch (thrown) {
      const old = before.tools.find((tool) => tool.name === name);
      const latest = this.#servers.get(server);
      // What was reported meanwhile stays; what was approved is again what it was.
      if (latest !== undefined && old !== undefined) {
        const { approved, approved_at } = old;
        this.#servers.set(
          server,
          withTool(latest, name, (tool) => ({ ...tool, approved, approved_at })),
        );
      }
      throw thrown;
    }
    this.#parts.onChange();
  }

  /** A server did it, so nobody is asked: it is in the ledger, and rules may detect it. */
  #note(server: string, isFirst: boolean, changes: readonly PinChange[]): void {
    const { boundary } = this.#parts;
    const noted = isFirst ? [] : changes.slice(0, PIN_LIMITS.notedMax);
    for (const { tool } of noted)
      boundary.note(this.#draft(server, tool, `its definition is ${stateOf(tool)}`), "done");
    const left = changes.length - noted.length;
    if (left === 0) return;
    const what = isFirst
      ? `${left} tools approved at first sight`
      : `${left} more tools are new, changed or gone`;
    boundary.note(this.#changeOf(keyOf(server, null), what, { before: null, after: String(left) }), "done");
  }

  #draft(server: string, tool: PinnedTool, title: string): ActDraft {
    const hashes = { before: tool.approved?.hash ?? null, after: tool.current?.hash ?? null };
    return this.#changeOf(keyOf(server, tool.name), title, hashes);
  }

  #changeOf(key: string, title: string, values: { before: string | null; after: string | null }): ActDraft {
    const digests = { digest_before: this.#parts.policyDigest(), digest_after: null };
    return {
      type: "settings.change",
      vm: null,
      fields: { "settings.key": key, "settings.source": "user" },
      title: `${key}: ${title}`,
      row: { table: "policy_mutations", facts: { key, source: "user", ...values, ...digests } },
    };
  }
}

function infoOf(server: string, tool: PinnedTool): McpPinInfo {
  const { name, approved, current, first_seen_at, approved_at } = tool;
  return {
    ...{ server, tool: name, pin: stateOf(tool), first_seen_at, approved_at },
    approved_hash: approved?.hash ?? null,
    current_hash: current?.hash ?? null,
    difference: lineDifference(approved?.canonical ?? "", current?.canonical ?? ""),
  };
}

function keyOf(server: string, tool: string | null): string {
  return tool === null ? `mcp.pins.${server}` : `mcp.pins.${server}.${tool}`;
}

function withTool(
  record: ServerRecord,
  name: string,
  change: (tool: PinnedTool) => PinnedTool | null,
): ServerRecord {
  const tools = record.tools.flatMap((tool) => (tool.name === name ? (change(tool) ?? []) : [tool]));
  return { ...record, tools };
}

function wordsOf(tool: PinnedTool): string {
  return stateOf(tool) === "new" ? "a new tool's" : "the changed";
}

function notWhatWasSeen(server: string, { name }: PinnedTool): Error {
  return apiFailure(
    "wrong_state",
    `Cannot approve "${name}" of server "${server}": its definition is not what was looked at any more`,
  );
}

/** Known before, so that its first report is not a first sight. */
function nothingOf(server: string): ServerRecord {
  const info = { name: "", version: "", protocol: "", resources: 0, prompts: 0 };
  return {
    version: 1,
    server,
    first_seen_at: new Date(0).toISOString(),
    seen_at: new Date(0).toISOString(),
    info,
    tools: [],
  };
}
