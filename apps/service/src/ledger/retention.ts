import { statSync } from "node:fs";
import { join } from "node:path";
import { HOST_LEDGER, type LedgerResult } from "@capsem/api";
import { Failure, messageOf } from "@capsem/base";
import type { ActDraft, Boundary } from "../boundary/parts.ts";
import type { HomeLayout } from "../home/layout.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { LedgerClient } from "./ledger-client.ts";
import { LEDGER_LIMITS } from "./limits.ts";

export interface RetentionParts {
  readonly layout: Pick<HomeLayout, "ledgers">;
  readonly ledger: Pick<LedgerClient, "read" | "remove" | "flush">;
  readonly boundary: Pick<Boundary, "note">;
  readonly hasVm: (id: string) => boolean;
  /** `ledger.retention_days` and `ledger.total_mib_max` of this moment. */
  readonly limits: () => { readonly days: number; readonly totalMib: number };
  readonly policyDigest: () => string;
  readonly nowMs: () => number;
  readonly monotonicMs: () => number;
  readonly log: ServiceLog;
}

type Listed = LedgerResult<"reader", "read.list">["ledgers"][number];
interface Old extends Listed {
  readonly endMs: number;
}

const DAY_MS = 86_400_000;
const MIB = 1024 ** 2;
const KEY = "ledger.retention";

/**
 * Removes ledgers of VMs that are gone: those that are too old, then the oldest while all are too large together. Never
 * the service's own, never one of a VM that is there. Each removal is in the service's own first.
 */
export class Retention {
  readonly #parts: RetentionParts;
  #lastMs = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | null = null;

  constructor(parts: RetentionParts) {
    this.#parts = parts;
  }

  /** Called as often as one likes: it does something once an hour. Never rejects. */
  async pass(): Promise<void> {
    const nowMs = this.#parts.monotonicMs();
    if (this.#running !== null || nowMs - this.#lastMs < LEDGER_LIMITS.retentionIntervalMs) return;
    this.#running = this.#sweep();
    try {
      await this.#running;
      this.#lastMs = nowMs;
    } catch (thrown) {
      this.#parts.log("warning", "old ledgers were not looked at", { cause: messageOf(thrown) });
    } finally {
      this.#running = null;
    }
  }

  async #sweep(): Promise<void> {
    const { ledger, limits, nowMs } = this.#parts;
    const { ledgers } = await ledger.read("read.list", {});
    const { days, totalMib } = limits();
    const oldest = ledgers
      .filter(({ vm_id: id }) => this.#isGone(id))
      .map((found): Old => ({ ...found, endMs: found.last_ms ?? this.#changedMs(found.vm_id) }))
      .sort((left, right) => left.endMs - right.endMs);
    let total = ledgers.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const old of oldest) {
      const isTooOld = nowMs() - old.endMs > days * DAY_MS;
      if (!isTooOld && total <= totalMib * MIB) continue;
      const why = isTooOld ? `older than ${days} days` : `all ledgers are above ${totalMib} MiB`;
      if (await this.#remove(old, why)) total -= old.bytes;
    }
  }

  /** Asked again right before a removal: an unfinished sweep may be older than a VM. */
  #isGone(id: string): boolean {
    return id !== HOST_LEDGER && !this.#parts.hasVm(id);
  }

  /** One that resists does not keep the others. */
  async #remove(old: Old, why: string): Promise<boolean> {
    const { ledger, boundary, log } = this.#parts;
    const { vm_id: id, rows, bytes } = old;
    if (!this.#isGone(id)) return false;
    try {
      boundary.note(this.#draft(old, why), "done");
      await this.#flush();
      await ledger.remove(id);
      log("info", "old ledger removed", { vm_id: id, rows, bytes, why });
      return true;
    } catch (thrown) {
      log("error", "cannot remove an old ledger", { vm_id: id, cause: messageOf(thrown) });
      return false;
    }
  }

  /** Where there is no room for the row that says it, the log alone does: the removal makes some. */
  async #flush(): Promise<void> {
    try {
      await this.#parts.ledger.flush(HOST_LEDGER);
    } catch (thrown) {
      if (!(thrown instanceof Failure) || thrown.kind !== "ledger_full") throw thrown;
    }
  }

  #draft({ vm_id: id, name, rows, bytes, endMs }: Old, why: string): ActDraft {
    const last = new Date(endMs).toISOString();
    return {
      type: "settings.change",
      vm: null,
      fields: { "settings.key": KEY, "settings.source": "user" },
      title: `remove the ledger of VM "${id}": ${why}`,
      row: {
        table: "policy_mutations",
        facts: {
          ...{ key: KEY, source: "user", after: null },
          before: JSON.stringify({ vm_id: id, name, rows, bytes, last, why }),
          digest_before: this.#parts.policyDigest(),
          digest_after: null,
        },
      },
    };
  }

  /** One without a row that can be read: when its folder was last another one. */
  #changedMs(id: string): number {
    const found = statSync(join(this.#parts.layout.ledgers, id), { throwIfNoEntry: false });
    return found?.mtimeMs ?? this.#parts.nowMs();
  }
}
