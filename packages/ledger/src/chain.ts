import { createHash, hash } from "node:crypto";
import { LEDGER_VERSION } from "@capsem/api";
import type { Cell } from "./sqlite.ts";

/** Who wrote a row, and its number among that producer's rows of one generation. */
export interface Origin {
  readonly producer: string;
  readonly generation: string;
  readonly seq: number;
}

export const BODY_TABLE = "event_body_blobs";
/** Columns of a stored body before the body itself. */
const BODY_FACTS = 4;

/** SHA-256 of UTF-8 text, in lower-case hex. */
export function sha256(text: string): string {
  return hash("sha256", text);
}

/** The head before the first row. */
export function genesisHead(ledger: string, version: number = LEDGER_VERSION): string {
  return sha256(`capsem-ledger ${version} ${ledger}`);
}

/**
 * Hash of a row that starts with its table's name: over who wrote it and all of its columns in order. A stored body is
 * left out, since its column `hash` stands for it.
 */
export function rowHash({ producer, generation, seq }: Origin, row: readonly Cell[]): string {
  return sha256(canonicalText(producer, generation, seq, row));
}

export function canonicalText(
  producer: string,
  generation: string,
  seq: number,
  row: readonly Cell[],
): string {
  const hashed = row[0] === BODY_TABLE ? row.slice(0, 1 + BODY_FACTS) : row;
  return JSON.stringify([producer, generation, seq, ...hashed]);
}

/** Both in lower-case hex, one behind the other. */
export function nextHead(head: string, hashOfRow: string): string {
  return sha256(head + hashOfRow);
}

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
