import type { LedgerHead } from "@capsem/api";
import { Failure, messageOf } from "@capsem/base";
import type { ServiceLog } from "../log/service-log.ts";
import type { Checkpoints } from "./checkpoints.ts";
import type { HeadKey } from "./key-files.ts";
import type { LedgerLink } from "./ledger-link.ts";
import { LEDGER_LIMITS } from "./limits.ts";

export interface HeadKeeperParts {
  readonly key: HeadKey;
  readonly checkpoints: Pick<Checkpoints, "read" | "write">;
  readonly link: () => LedgerLink | null;
  readonly monotonicMs: () => number;
  readonly log: ServiceLog;
}

interface Kept {
  head: LedgerHead;
  /** The last head that is signed and in its checkpoint; null: not looked at yet. */
  kept: LedgerHead | null;
  lastMs: number;
  timer: NodeJS.Timeout | null;
  running: Promise<void>;
}

/**
 * Signs heads and keeps them: in the ledger, which answers when all of it is on the disk, then in the checkpoint. At
 * most once a second for each ledger, and whenever somebody asks. A chain only grows: a head of fewer rows, or another
 * one of as many, is refused wherever it comes from.
 */
export class HeadKeeper {
  readonly #parts: HeadKeeperParts;
  readonly #kept = new Map<string, Kept>();

  constructor(parts: HeadKeeperParts) {
    this.#parts = parts;
  }

  /** The ledger has this head now. Throws "ledger_broken" where it had another one. */
  note(ledger: string, head: LedgerHead): void {
    const known = this.#kept.get(ledger);
    if (known !== undefined) checkGrowth(ledger, known.head, head);
    const kept: Kept = known ?? {
      head,
      kept: null,
      lastMs: Number.NEGATIVE_INFINITY,
      timer: null,
      running: Promise.resolve(),
    };
    kept.head = head;
    if (known === undefined) this.#kept.set(ledger, kept);
    this.#schedule(ledger, kept);
  }

  /** Resolves when the head of this moment is signed and in its checkpoint. */
  async keep(ledger: string): Promise<void> {
    const kept = this.#kept.get(ledger);
    if (kept === undefined) return;
    if (kept.timer !== null) clearTimeout(kept.timer);
    kept.timer = null;
    const next = kept.running.then(() => this.#keep(ledger, kept));
    kept.running = next.catch(() => undefined);
    await next;
  }

  /** Its files are another's business now: nothing more is signed or written of it. */
  async forget(ledger: string): Promise<void> {
    const kept = this.#kept.get(ledger);
    if (kept === undefined) return;
    this.#kept.delete(ledger);
    if (kept.timer !== null) clearTimeout(kept.timer);
    await kept.running;
  }

  #schedule(ledger: string, kept: Kept): void {
    if (kept.timer !== null || kept.head.rows === kept.kept?.rows) return;
    const waitMs = Math.max(0, kept.lastMs + LEDGER_LIMITS.signIntervalMs - this.#parts.monotonicMs());
    kept.timer = setTimeout(() => {
      this.keep(ledger).catch((thrown: unknown) => {
        const kind = thrown instanceof Failure ? thrown.kind : "internal";
        const cause = messageOf(thrown);
        const level = kind === "ledger_broken" ? "error" : "warning";
        if (kind !== "peer_lost") this.#parts.log(level, "a head was not kept", { vm_id: ledger, cause });
        if (this.#kept.get(ledger) === kept && kind !== "ledger_broken") this.#schedule(ledger, kept);
      });
    }, waitMs);
    kept.timer.unref();
  }

  async #keep(ledger: string, kept: Kept): Promise<void> {
    const { key, checkpoints, monotonicMs } = this.#parts;
    const { head } = kept;
    const link = this.#parts.link();
    if (head.rows === kept.kept?.rows) return;
    if (link === null)
      throw new Failure("peer_lost", `Cannot sign a head of "${ledger}": the ledger is away`);
    kept.lastMs = monotonicMs();
    kept.kept ??= await checkpoints.read(ledger);
    if (kept.kept !== null) checkGrowth(ledger, kept.kept, head);
    if (head.rows === kept.kept?.rows) return;
    const signature = key.sign(ledger, head);
    await link.call(
      "producer",
      "ledger.sign",
      { ledger, ...head, signature, key_id: key.keyId },
      { timeoutMs: LEDGER_LIMITS.readTimeoutMs },
    );
    await checkpoints.write(ledger, head, signature);
    kept.kept = head;
  }
}

function checkGrowth(ledger: string, before: LedgerHead, { rows, head }: LedgerHead): void {
  if (rows > before.rows || (rows === before.rows && head === before.head)) return;
  throw new Failure(
    "ledger_broken",
    `Cannot sign a head of "${ledger}": its head after ${rows} rows contradicts the one after ${before.rows}`,
  );
}
