import type { ToolPin } from "@capsem/api";
import { type Decision, type PolicySnapshot, standingBlock } from "@capsem/policy";
import { type Asked, requestDraft, type Subject, type Target } from "../judge/events.ts";
import { type Asker, type Judgement, judge } from "../judge/judge.ts";
import { PROXY_LIMITS } from "../limits.ts";
import type { RailParts } from "../parts.ts";
import type { Recorder } from "../record/recorder.ts";
import { type Catalog, type Item, type ItemKind, listedText, type ToolItem } from "./catalog.ts";
import type { DeclaredServer } from "./server-book.ts";

/** A server's items of one kind, as a client may see them. */
export interface View {
  /** Of the list as such: nothing of it is seen, nor used, where it blocks. */
  readonly decision: Decision;
  readonly isOpen: boolean;
  /** As they are listed. */
  readonly texts: readonly string[];
}

/** Which method uses what a list shows, and lists it. */
export const METHODS_OF = {
  tools: { list: "tools/list", use: "tools/call" },
  resources: { list: "resources/list", use: "resources/read" },
  templates: { list: "resources/templates/list", use: "resources/read" },
  prompts: { list: "prompts/list", use: "prompts/get" },
} as const satisfies Record<ItemKind, { list: string; use: string }>;

/** What differs from one use of a thing to another. */
const UNSEEN = ["mcp.request.arguments", "mcp.request.id", "mcp.tool_call.id"] as const;

interface Kept {
  readonly snapshot: PolicySnapshot;
  readonly catalog: Catalog;
  readonly pins: ReadonlyMap<string, ToolPin> | undefined;
  readonly vm: RailParts["vm"];
  readonly decision: Decision;
  isOpen: boolean;
  texts: readonly string[] | undefined;
  /** Ends the question of it, when it is no longer what is shown. */
  readonly gone: AbortController;
}

/**
 * What rules let a client see. A list is judged once for each catalogue and snapshot, and again for askers whom some rule
 * tells apart; not for each client that lists.
 */
export class Views {
  readonly #parts: RailParts;
  readonly #recorder: Recorder;
  readonly #onOpened: (kind: ItemKind) => void;
  readonly #kept = new Map<string, Kept>();

  constructor(parts: RailParts, recorder: Recorder, onOpened: (kind: ItemKind) => void) {
    this.#parts = parts;
    this.#recorder = recorder;
    this.#onOpened = onOpened;
  }

  /** Throws Failure where the judgement of a list that is new cannot be recorded. */
  of(server: DeclaredServer, catalog: Catalog, kind: ItemKind, asker: Asker): View {
    const kept = this.#keptOf(server, catalog, kind, asker);
    if (kept.isOpen) kept.texts ??= this.#textsOf(server, catalog, kind, asker);
    return { decision: kept.decision, isOpen: kept.isOpen, texts: kept.texts ?? [] };
  }

  /** What keeps a list closed; undefined of one that is open. */
  closedBy(server: DeclaredServer, catalog: Catalog, kind: ItemKind, asker: Asker): Decision | undefined {
    const { isOpen, decision } = this.#keptOf(server, catalog, kind, asker);
    return isOpen ? undefined : decision;
  }

  /** The block that keeps a thing out of its list, and out of every other way to it. */
  hiddenBy(server: DeclaredServer, kind: ItemKind, key: string, asker: Asker): Decision | undefined {
    const { snapshot } = this.#parts.policy;
    const { event, decision } = this.#dry(server, kind, key, asker);
    return event === null ? decision : standingBlock(snapshot, event, UNSEEN);
  }

  #keptOf(server: DeclaredServer, catalog: Catalog, kind: ItemKind, asker: Asker): Kept {
    const { vm } = this.#parts;
    const { snapshot } = this.#parts.policy;
    const pins = this.#parts.book.pinsOf(server.name);
    const seen = this.#asSeen(asker);
    const key = JSON.stringify([server.name, kind, seen.transport, seen.processName, seen.label]);
    const known = this.#kept.get(key);
    if (known?.snapshot === snapshot && known.catalog === catalog && known.pins === pins && known.vm === vm) {
      return known;
    }
    const judgement = this.#judgeList(server, catalog, kind, asker);
    const { decision } = judgement;
    const kept: Kept = {
      snapshot,
      catalog,
      pins,
      vm,
      decision,
      isOpen: decision.action === "allow",
      texts: undefined,
      gone: new AbortController(),
    };
    known?.gone.abort();
    if (this.#kept.size >= PROXY_LIMITS.viewsMax) this.#forget();
    this.#kept.set(key, kept);
    if (decision.action === "ask") this.#ask(kept, judgement, kind, server.name);
    return kept;
  }

  #forget(): void {
    for (const { gone } of this.#kept.values()) gone.abort();
    this.#kept.clear();
  }

  /** Askers whom no rule tells apart are one. */
  #asSeen({ transport, processName, label }: Asker) {
    const { reads } = this.#parts.policy.snapshot;
    const hasLabel = reads("label.integrity") || reads("label.confidentiality") || reads("label.sources");
    return {
      transport: reads("mcp.transport") ? transport : "",
      processName: reads("process.name") ? processName : "",
      label: hasLabel ? label : "",
    };
  }

  #judgeList(server: DeclaredServer, catalog: Catalog, kind: ItemKind, asker: Asker): Judgement {
    const { vm, policy } = this.#parts;
    const who = this.#recorder.who(asker.person);
    const draft = requestDraft(vm, asker, { method: METHODS_OF[kind].list }, { server });
    if (kind === "tools") draft.fields["mcp.tool_list"] = [...catalog.tools.keys()];
    const type = kind === "tools" ? "mcp.tool_list" : draft.type;
    const judgement = judge(policy.snapshot, type, who, draft.fields);
    // Of the list that its client waits for, which had room for the first of them.
    this.#recorder.intent(judgement, 0, true);
    return judgement;
  }

  /** A person opens the list, and whoever lists then sees it; nobody is kept waiting meanwhile. */
  #ask(kept: Kept, judgement: Judgement, kind: ItemKind, server: string): void {
    const title = `show the ${kind} of ${server}`;
    this.#recorder
      .ask(judgement, title, PROXY_LIMITS.clientAnswerTimeoutMs, kept.gone.signal)
      .then(({ state }) => {
        if (state !== "approved") return;
        kept.isOpen = true;
        this.#onOpened(kind);
      })
      .catch((thrown: unknown) => {
        if (kept.gone.signal.aborted) return;
        this.#parts.log("warning", "nobody could be asked about a list", { server, cause: String(thrown) });
      });
  }

  #dry(server: DeclaredServer, kind: ItemKind, key: string, asker: Asker): Judgement {
    const { vm, policy } = this.#parts;
    const asked: Asked = {
      method: METHODS_OF[kind].use,
      ...(kind === "tools" || kind === "prompts" ? { arguments: {} } : {}),
    };
    const subject: Subject = { server, target: this.targetOf(server, kind, key) };
    const { type, fields } = requestDraft(vm, asker, asked, subject);
    return judge(policy.snapshot, type, { ...asker.person, event_id: NO_EVENT, time_ms: 0 }, fields);
  }

  targetOf(server: DeclaredServer, kind: ItemKind, key: string): Target {
    switch (kind) {
      case "tools":
        return { kind: "tool", name: key, isPinned: this.isPinned(server, key) };
      case "prompts":
        return { kind: "prompt", name: key };
      case "resources":
      case "templates":
        return { kind: "resource", uri: key };
    }
  }

  /** The definition as it is now is the one that was approved. Ours need no approval: they are of this program. */
  isPinned({ name, isExternal }: Pick<DeclaredServer, "name" | "isExternal">, tool: string): boolean {
    if (!isExternal) return true;
    const pin = this.#parts.book.pin(name, tool);
    const now = this.#parts.catalogs.peek(name)?.tools.get(tool);
    return pin?.state === "pinned" && (now === undefined || now.hash === pin.approved_hash);
  }

  /** Its definition was seen, and nobody has approved it as it was then. */
  isQuarantined({ name }: Pick<DeclaredServer, "name">, tool: string): boolean {
    const state = this.#parts.book.pin(name, tool)?.state;
    return state === "changed" || state === "new";
  }

  /** A tool's definition as clients have it: they make headers of it. */
  definitionOf(server: Pick<DeclaredServer, "name" | "isExternal">, item: ToolItem): string {
    return this.#approvedText(server, item) ?? item.text;
  }

  #textsOf(server: DeclaredServer, catalog: Catalog, kind: ItemKind, asker: Asker): string[] {
    const texts: string[] = [];
    const items: Iterable<Item> = catalog[kind].values();
    for (const item of items) {
      const text = kind === "tools" ? this.#approvedText(server, item as ToolItem) : item.text;
      if (text === null || this.hiddenBy(server, kind, item.key, asker) !== undefined) continue;
      texts.push(listedText(kind, item, text));
    }
    return texts;
  }

  /** What was approved of a tool; null of one that nobody has approved. */
  #approvedText(server: Pick<DeclaredServer, "name" | "isExternal">, item: ToolItem): string | null {
    if (this.isPinned(server, item.key)) return item.text;
    return this.#parts.book.pin(server.name, item.key)?.approved ?? null;
  }
}

/** What is only tried has no id of its own: it is in no ledger. */
const NO_EVENT = "000000000000";
