import { createHash } from "node:crypto";
import type { Cell, Origin } from "@capsem/api/ledger-chain";

export {
  BODY_TABLE,
  genesisHead,
  hashedCells,
  LEDGER_PRODUCER,
  nextHead,
  type Origin,
  rowHash,
  sha256,
} from "@capsem/api/ledger-chain";

/** Of a key's public half as DER: its first 16 hex digits name it. */
export function keyIdOf(publicKeyDer: Uint8Array): string {
  return createHash("sha256").update(publicKeyDer).digest("hex").slice(0, 16);
}

/** A row of the chain, as it is stored. */
export interface ChainRow extends Origin {
  readonly n: number;
  readonly table: string;
  readonly rowId: number;
  readonly hash: string;
  readonly head: string;
}

export const CHAIN_COLUMNS = "n, tbl, row_id, producer, generation, seq, row_hash, head";

export function chainRow(row: readonly Cell[]): ChainRow {
  const [n, table, rowId, producer, generation, seq, hash, head] = row;
  return {
    n: Number(n),
    table: String(table),
    rowId: Number(rowId),
    producer: String(producer),
    generation: String(generation),
    seq: Number(seq),
    hash: String(hash),
    head: String(head),
  };
}
