/** Hashes of a ledger (docs/ledger-format.md): the ledger chains its rows with them, the service follows the chain. */
import { hash } from "node:crypto";
import { LEDGER_VERSION } from "./ledger-table.ts";

export type Cell = string | number | null;

/** Who wrote a row, and its number among that producer's rows of one generation. */
export interface Origin {
  readonly producer: string;
  readonly generation: string;
  readonly seq: number;
}

export const BODY_TABLE = "event_body_blobs";
/** Columns of a stored body before the body itself. */
const BODY_FACTS = 4;

/** The rows that a ledger writes itself, numbered through all of its life. */
export const LEDGER_PRODUCER = { producer: "ledger", generation: "ledger" } as const;

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
