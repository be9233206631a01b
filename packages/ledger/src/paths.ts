import { join } from "node:path";
import { ledgerId } from "@capsem/api";
import { ledgerFailure } from "./error.ts";

/** Where a ledger's files are. An id is checked before it becomes part of a path, whoever names it. */
export interface LedgerPaths {
  readonly folder: string;
  readonly database: string;
  readonly archive: string;
}

const DATABASE = "session.db";
/** The database, its log of changes, the memory that its connections share. */
export const DATABASE_FILES = [DATABASE, `${DATABASE}-wal`, `${DATABASE}-shm`, `${DATABASE}-journal`];

export function ledgerPaths(root: string, ledger: string): LedgerPaths {
  if (!isLedgerId(ledger)) {
    throw ledgerFailure(
      "invalid_input",
      `Cannot name ledger ${JSON.stringify(ledger.slice(0, 64))}: it is no id`,
    );
  }
  const folder = join(root, ledger);
  return { folder, database: join(folder, DATABASE), archive: join(folder, "archive") };
}

export function isLedgerId(name: string): boolean {
  return ledgerId.safeParse(name).success;
}
