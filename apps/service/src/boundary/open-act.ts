import type { Outcome } from "@capsem/api";
import { messageOf } from "@capsem/base";
import type { Decision } from "@capsem/policy";
import type { ServiceLog } from "../log/service-log.ts";
import { BOUNDARY_LIMITS } from "./limits.ts";
import type { ActRow, LedgerWriter, OpenAct, Redactor } from "./parts.ts";
import { type Cells, endRow, type Who } from "./rows.ts";

export interface OpenActParts {
  readonly ledger: LedgerWriter;
  readonly redactor: Redactor;
  readonly monotonicMs: () => number;
  readonly log: ServiceLog;
}

/** An act between its intent and its end. Exactly one row ends it; later ends are dropped. Never throws. */
export class RecordedAct implements OpenAct {
  isKept = false;
  readonly #parts: OpenActParts;
  /** Null: no ledger could take its intent, so none has to take its end. */
  readonly #ledger: string | null;
  readonly #who: Who;
  readonly #row: ActRow;
  readonly #decision: Decision;
  #added: Cells = {};
  #startedMs: number | null = null;
  #isClosed = false;

  constructor(parts: OpenActParts, ledger: string | null, who: Who, row: ActRow, decision: Decision) {
    this.#parts = parts;
    this.#ledger = ledger;
    this.#who = who;
    this.#row = row;
    this.#decision = decision;
  }

  /** It is being done from now on. */
  start(): void {
    this.#startedMs = this.#parts.monotonicMs();
  }

  add(facts: Cells): void {
    this.#added = { ...this.#added, ...facts };
  }

  /** `why` is told of changes of settings, whose other columns say nothing of it. */
  close(outcome: Outcome, error: string | null = null, why: string | null = null): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#ledger === null) return;
    const { ledger, redactor, monotonicMs, log } = this.#parts;
    const durationMs =
      this.#startedMs === null ? null : Math.round((monotonicMs() - this.#startedMs) * 1000) / 1000;
    try {
      const end = { outcome, error: errorText(this.#row, error, why), durationMs };
      const { table, row } = endRow(this.#who, this.#row, this.#added, this.#decision, end, redactor);
      ledger.append(this.#ledger, table, row);
    } catch (thrown) {
      // Its intent is there: the ledger itself ends what nobody ended, as interrupted.
      log("error", "the end of an act is not in the ledger", {
        event_id: this.#who.event_id,
        ledger: this.#ledger,
        outcome,
        cause: messageOf(thrown),
      });
    }
  }
}

function errorText({ table }: ActRow, error: string | null, why: string | null): string | null {
  if (table !== "policy_mutations" || error === null || why === null) return error;
  return `${error}: ${why}`.slice(0, BOUNDARY_LIMITS.errorCharactersMax);
}
