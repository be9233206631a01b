import { createHash, randomBytes } from "node:crypto";
import type { AskInfo, LedgerRow } from "@capsem/api";
import { Failure } from "@capsem/base";
import {
  compileSnapshot,
  decide,
  type EventFields,
  type PolicyEdit,
  parseLayer,
  securityEvent,
} from "@capsem/policy";
import { AskBook, type AskParts } from "../ask/ask-book.ts";
import type { Asked, VmFacts } from "../boundary/parts.ts";
import { SecretRedactor } from "../credential/redactor.ts";

export type AskRow = LedgerRow<"security_ask_events"> & { readonly ledger: string };
export const VM: VmFacts = { id: "vm_aaaaaaaaaaaaaaaa", name: "dev", image: null };
export const OTHER_VM: VmFacts = { id: "vm_bbbbbbbbbbbbbbbb", name: null, image: null };

const RULES = `
[profiles.rules.net]
action = "ask"
match = 'process.command.contains("curl")'
priority = 20
reason = "it reaches out"
`;

/** An ask book whose time, ledger and watchers are the test's. */
export class AskRig {
  readonly redactor = new SecretRedactor();
  readonly rows: AskRow[] = [];
  readonly told: AskInfo[] = [];
  readonly edits: PolicyEdit[] = [];
  readonly logged: Record<string, unknown>[] = [];
  readonly gone = new Set<string>();
  watchers = 1;
  ledger: "takes" | "away" | "full" = "takes";
  writeRule: AskParts["writeRule"] = async (_context, edit) => void this.edits.push(edit);
  onAppend: () => void = () => undefined;
  nowMs = 1_700_000_000_000;
  #steadyMs = 0;
  readonly #timers = new Set<{ atMs: number; fire: () => void }>();
  readonly #folder: string;
  readonly #snapshot = compileSnapshot(layerOf(RULES), () => "0".repeat(64));

  constructor(folder: string) {
    this.#folder = folder;
  }

  open(): Promise<AskBook> {
    return AskBook.open({
      folder: this.#folder,
      redactor: this.redactor,
      ledger: {
        appendAll: (ledger, rows) => {
          this.#checkLedger();
          this.onAppend();
          for (const { row } of rows)
            this.rows.push({ ledger, ...(row as LedgerRow<"security_ask_events">) });
        },
        ready: async () => this.#checkLedger(),
      },
      log: (level, message, fields) => void this.logged.push({ level, message, ...fields }),
      nowMs: () => this.nowMs,
      monotonicMs: () => this.#steadyMs,
      random: (bytes) => randomBytes(bytes),
      startTimer: (ms, fire) => {
        const timer = { atMs: this.#steadyMs + ms, fire };
        this.#timers.add(timer);
        return () => void this.#timers.delete(timer);
      },
      waits: () => ({ timeoutMs: 300_000, unattendedMs: 30_000 }),
      watcherCount: () => this.watchers,
      tell: (ask) => void this.told.push(ask),
      writeRule: (context, edit) => this.writeRule(context, edit),
      hasVm: (id) => !this.gone.has(id),
    });
  }

  get timers(): number {
    return this.#timers.size;
  }

  /** Both clocks go on, and what is due fires in its order. */
  async pass(ms: number): Promise<void> {
    const endMs = this.#steadyMs + ms;
    for (;;) {
      const [next] = [...this.#timers].filter(({ atMs }) => atMs <= endMs).sort((a, b) => a.atMs - b.atMs);
      if (next === undefined) break;
      this.#timers.delete(next);
      this.#setSteady(Math.max(this.#steadyMs, next.atMs));
      next.fire();
      await settled();
    }
    this.#setSteady(endMs);
    await settled();
  }

  /** The act as the boundary would ask for it; each try has another event. */
  asked(command = "curl example.com", vm: VmFacts | null = VM, fields: EventFields = {}): Asked {
    const identity = { event_id: randomBytes(6).toString("hex"), trace_id: "1".repeat(32) };
    const event = securityEvent("process.exec", identity, {
      "process.command": command,
      "process.exec.user": "user",
      ...(vm === null ? {} : { "vm.id": vm.id }),
      ...(vm === null || vm.name === null ? {} : { "vm.name": vm.name }),
      ...fields,
    });
    const decision = decide(this.#snapshot, event);
    const digest = digestOf(`${vm?.id} ${command}`);
    return { event, decision, title: `exec ${command}`, vm, digest, bound: [], onlyOnce: null };
  }

  #setSteady(ms: number): void {
    this.nowMs += ms - this.#steadyMs;
    this.#steadyMs = ms;
  }

  #checkLedger(): void {
    if (this.ledger === "away") throw new Failure("ledger_away", "Cannot record: the ledger is away");
    if (this.ledger === "full") throw new Failure("ledger_full", "Cannot record: the ledger is full");
  }
}

/** Everything that can happen without time has happened. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function layerOf(text: string) {
  const parsed = parseLayer("user", text);
  if (parsed.kind !== "ok") throw new Error(JSON.stringify(parsed));
  return { user: parsed.value };
}
