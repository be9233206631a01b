import { LEDGER_VERSION } from "@capsem/api";
import { BODY_TABLE, CHAIN_COLUMNS, chainRow, genesisHead, hashedCells } from "./chain.ts";
import { ledgerFailure } from "./error.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import type { LedgerReader } from "./reader.ts";
import { columnsOf, TABLES } from "./schema.ts";
import type { Cell } from "./sqlite.ts";
import { TableWalk } from "./table-walk.ts";
import { signedHeads } from "./verify.ts";

/**
 * A ledger as JSON lines (docs/ledger-format.md, "Export"), some lines at a time: nothing of the database is held while
 * a part is on its way. Rows that come meanwhile are not in it.
 */
export function* exportLines(reader: LedgerReader): Generator<string, void, void> {
  const rows = reader.rows();
  yield `${JSON.stringify(headLine(reader, rows))}\n`;
  for (let from = 0; from < rows; ) {
    const part = exportPart(reader, from, Math.min(rows, from + LEDGER_LIMITS.sliceRows));
    yield part.text;
    from = part.end;
  }
}

function headLine(reader: LedgerReader, rows: number) {
  const head = reader.prepare("SELECT head FROM ledger_chain WHERE n = ?").get(rows)?.[0];
  return {
    capsem_ledger: LEDGER_VERSION,
    ledger: reader.ledger,
    rows,
    genesis: genesisHead(reader.ledger),
    head: head ?? genesisHead(reader.ledger),
    heads: signedHeads(reader)
      .filter((signed) => signed.rows <= rows)
      .map(({ keyId, ...signed }) => ({ ...signed, key_id: keyId })),
    tables: Object.fromEntries(
      TABLES.map((table) => [table, columnsOf(table, reader.version).map(({ name }) => name)]),
    ),
  };
}

/** Rows after `from`, up to `end` or to the size of a slice. */
function exportPart(reader: LedgerReader, from: number, end: number): { text: string; end: number } {
  return reader.atOnce(() => {
    const walks = new Map<string, TableWalk>(
      TABLES.map((table) => [table, new TableWalk(reader, table, from, end)]),
    );
    const chain = reader
      .prepare(`SELECT ${CHAIN_COLUMNS} FROM ledger_chain WHERE n > ? AND n <= ? ORDER BY n`)
      .iterate(from, end);
    const lines: string[] = [];
    let characters = 0;
    let last = from;
    try {
      for (const cells of chain) {
        const line = lineOf(cells, walks);
        lines.push(line);
        characters += line.length;
        last = Number(cells[0]);
        if (characters > LEDGER_LIMITS.sliceBytesMax) break;
      }
      return { text: lines.join(""), end: last === from ? end : last };
    } finally {
      chain.return?.();
      for (const walk of walks.values()) walk.close();
    }
  });
}

function lineOf(cells: readonly Cell[], walks: ReadonlyMap<string, TableWalk>): string {
  const { n, table, rowId, producer, generation, seq, hash, head } = chainRow(cells);
  const walk = walks.get(table);
  const values = (rowId === n ? walk?.take(n)?.values : walk?.earlier(rowId)) ?? null;
  if (values === null) {
    throw ledgerFailure(
      "ledger_broken",
      `Cannot export: row ${n} is gone from ${table}; verify names what is wrong`,
    );
  }
  return `${JSON.stringify({ n, table, producer, generation, seq, row: told(table, values, rowId === n), hash, head })}\n`;
}

/** A body that came before is there once: its hash says which. All else is told as it is hashed. */
function told(table: string, values: readonly Cell[], isOwn: boolean): readonly Cell[] {
  if (table === BODY_TABLE) return isOwn ? values : [...values.slice(0, -1), null];
  return hashedCells([table, ...values]).slice(1);
}
