import { HOST_LEDGER, type LedgerResult } from "@capsem/api";
import { archiveCount, hasLedger, ledgerIds } from "./files.ts";
import type { LedgerReader, ReaderPool } from "./reader.ts";
import type { Sliced } from "./slices.ts";
import { timeSpan } from "./stats.ts";

type Listed = LedgerResult<"reader", "read.list">["ledgers"][number];

/**
 * Every ledger below a folder, also of VMs that are gone. One that cannot be read is there with no rows: what is wrong
 * with it is `verify`'s to say, and `onFault` hears of it.
 */
export function* listLedgers(
  root: string,
  readers: Pick<ReaderPool, "open">,
  onFault: (ledger: string, thrown: unknown) => void,
): Sliced<{ ledgers: Listed[] }> {
  const ledgers: Listed[] = [];
  for (const ledger of ledgerIds(root)) {
    const archived = archiveCount(root, ledger);
    if (hasLedger(root, ledger)) ledgers.push({ ...facts(readers, ledger, onFault), archived });
    else if (archived > 0) ledgers.push({ ...NOTHING, vm_id: ledger, archived });
    yield;
  }
  return { ledgers };
}

const NOTHING = { name: null, rows: 0, bytes: 0, first_ms: null, last_ms: null };

function facts(
  readers: Pick<ReaderPool, "open">,
  ledger: string,
  onFault: (ledger: string, thrown: unknown) => void,
) {
  try {
    const reader = readers.open(ledger);
    try {
      return reader.atOnce(() => {
        const { first, last } = timeSpan(reader);
        return {
          vm_id: ledger,
          // The service's own has rows of VMs that never came to be, and is none of them.
          name: ledger === HOST_LEDGER ? null : lastName(reader),
          rows: reader.rows(),
          bytes: reader.bytes(),
          first_ms: first,
          last_ms: last,
        };
      });
    } finally {
      reader.close();
    }
  } catch (thrown) {
    onFault(ledger, thrown);
    return { ...NOTHING, vm_id: ledger };
  }
}

function lastName(reader: LedgerReader): string | null {
  const name = reader
    .prepare("SELECT vm_name FROM lifecycle_events WHERE vm_name IS NOT NULL ORDER BY row_id DESC LIMIT 1")
    .get()?.[0];
  return typeof name === "string" ? name : null;
}
