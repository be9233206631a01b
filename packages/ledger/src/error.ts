import { Failure } from "@capsem/base";

/**
 * - `ledger_broken`: what is there is not what was written, or is no ledger that this version reads
 * - `ledger_full`: the quota is used up
 * - `ledger_failed`: the disk or the database refused; nothing of the batch is stored, and it may be tried again
 * - `ledger_gap`: rows before these are missing, or their generation is not open
 * - `bad_row`: a row that no table can hold
 * - `ledger_not_found`: there is none of this id
 */
export type LedgerFailureKind =
  | "ledger_broken"
  | "ledger_full"
  | "ledger_failed"
  | "ledger_gap"
  | "ledger_not_found"
  | "bad_row"
  | "wrong_state"
  | "invalid_input";

export function ledgerFailure(
  kind: LedgerFailureKind,
  message: string,
  options: { cause?: unknown; detail?: string } = {},
): Failure<LedgerFailureKind> {
  return new Failure(kind, message, { retryable: kind === "ledger_failed", ...options });
}
