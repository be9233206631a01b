import { ENDS_IN, type LedgerTable } from "@capsem/api";
import type { AnyRow } from "../boundary/parts.ts";

/** Acts of one ledger that were begun and have not ended: its files stay open for their end. */
export class OpenActs {
  readonly #acts = new Map<string, LedgerTable>();

  get size(): number {
    return this.#acts.size;
  }

  note({ table, row }: AnyRow): void {
    if (table === "security_decision_events") {
      const endTable = ENDS_IN[row.type];
      if (endTable !== undefined) this.#acts.set(row.event_id, endTable);
    } else if (table !== "event_body_blobs" && this.#acts.get(row.event_id) === table) {
      this.#acts.delete(row.event_id);
    }
  }

  clear(): void {
    this.#acts.clear();
  }
}
