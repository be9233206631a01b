import { join } from "node:path";
import { ledgerId, ledgerRef } from "@capsem/api";
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

/** Of a ledger by its id, and of one that was set aside by id@name. */
export function ledgerPaths(root: string, name: string): LedgerPaths {
  if (!ledgerRef.safeParse(name).success) {
    throw ledgerFailure(
      "invalid_input",
      `Cannot name ledger ${JSON.stringify(name.slice(0, 64))}: it is no id`,
    );
  }
  const archive = join(root, idOf(name), "archive");
  const folder = isLedgerId(name) ? join(root, name) : join(archive, name.slice(idOf(name).length + 1));
  return { folder, database: join(folder, DATABASE), archive };
}

/** Whose ledger it is, also of one that was set aside. */
export function idOf(name: string): string {
  return name.split("@")[0] ?? "";
}

export function isLedgerId(name: string): boolean {
  return ledgerId.safeParse(name).success;
}
