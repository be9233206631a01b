import { existsSync } from "node:fs";
import { LEDGER_LIMITS } from "./limits.ts";
import { ledgerPaths } from "./paths.ts";
import { writerDatabases } from "./schema.ts";
import type { Database } from "./sqlite.ts";

/** Writes logs back into their databases beside the writer, so that no commit has to. */
export interface Checkpointer {
  /** As much as nobody reads any more; waits for nobody. */
  checkpoint(ledger: string): void;
  /** Before its files are moved. */
  release(ledger: string): void;
  close(): void;
}

export function openCheckpointer(root: string): Checkpointer {
  const databases = writerDatabases();
  const open = new Map<string, Database>();
  const release = (ledger: string) => {
    const known = open.get(ledger);
    open.delete(ledger);
    known?.close();
  };
  const database = (ledger: string): Database | null => {
    const { database: path } = ledgerPaths(root, ledger);
    const known = open.get(ledger);
    if (known === undefined && !existsSync(path)) return null;
    open.delete(ledger);
    const db = known ?? databases.open(path, `ledger "${ledger}"`);
    open.set(ledger, db);
    const [oldest] = open.keys();
    if (open.size > LEDGER_LIMITS.openMax && oldest !== undefined) release(oldest);
    return db;
  };
  return {
    checkpoint(ledger) {
      const db = database(ledger);
      try {
        db?.exec("PRAGMA ledger.wal_checkpoint(PASSIVE)");
      } catch (thrown) {
        release(ledger);
        throw thrown;
      }
    },
    release,
    close: () => {
      for (const ledger of [...open.keys()]) release(ledger);
    },
  };
}
