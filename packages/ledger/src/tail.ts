import type { LedgerHead } from "@capsem/api";
import { genesisHead, nextHead } from "./chain.ts";
import type { Database } from "./sqlite.ts";

/** What is wrong with the end of a chain, looked at when a ledger is opened; null for nothing. */
export function tailFault(db: Database, ledger: string, { rows, head }: LedgerHead): string | null {
  const last = db.prepare("SELECT n, row_hash, head FROM ledger_chain ORDER BY n DESC LIMIT 2").all() as [
    number,
    string,
    string,
  ][];
  const [end, before] = last;
  if (end === undefined) return rows === 0 ? null : "its chain is empty";
  const headBefore = before === undefined ? genesisHead(ledger) : before[2];
  if (end[0] !== 1 && before?.[0] !== end[0] - 1) return `row ${end[0] - 1} of its chain is gone`;
  if (nextHead(headBefore, end[1]) !== head) return `the head after row ${end[0]} does not follow from it`;
  return null;
}
