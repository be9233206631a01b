import { Failure, messageOf } from "@capsem/base";

/**
 * - `ledger_broken`: what is there is not what was written, or is no ledger that this version reads
 * - `ledger_full`: the quota is used up
 * - `disk_full`: there is no room; as `ledger_failed`, and over when there is
 * - `ledger_failed`: the disk or the database refused; nothing of the batch is stored, and it may be tried again
 * - `ledger_gap`: rows before these are missing, or their generation is not open
 * - `bad_row`: a row that no table can hold
 * - `ledger_not_found`: there is none of this id
 */
export type LedgerFailureKind =
  | "ledger_broken"
  | "ledger_full"
  | "disk_full"
  | "ledger_failed"
  | "ledger_gap"
  | "ledger_not_found"
  | "bad_row"
  | "wrong_state"
  | "invalid_input";

const RETRYABLE: readonly LedgerFailureKind[] = ["ledger_failed", "disk_full"];

export function ledgerFailure(
  kind: LedgerFailureKind,
  message: string,
  options: { cause?: unknown; detail?: string } = {},
): Failure<LedgerFailureKind> {
  return new Failure(kind, message, { retryable: RETRYABLE.includes(kind), ...options });
}

/** What the system refused of `what`: there is no room, or all else. */
export function systemFailure(what: string, cause: unknown): Failure<LedgerFailureKind> {
  const code = cause instanceof Error && "code" in cause ? cause.code : null;
  const kind = code === "ENOSPC" || code === "EDQUOT" ? "disk_full" : "ledger_failed";
  return ledgerFailure(kind, `Cannot ${what}: ${messageOf(cause)}`, { cause });
}
