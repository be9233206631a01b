import { type LedgerTable, OUTCOMES } from "@capsem/api";
import { BODY_TABLE, sha256 } from "./chain.ts";
import { ledgerFailure } from "./error.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { COLUMNS, type Column, isTable } from "./schema.ts";
import type { Cell } from "./sqlite.ts";

/** A row that its table can hold: the table's name, then its columns in order. */
export type Row = readonly [LedgerTable, ...Cell[]];

/** The last time that a date can name. */
const TIME_MS_MAX = 8.64e15;
const DECISIONS: readonly string[] = ["allow", "ask", "block"];

/** Columns whose words readers rely on. */
const WORDS: Readonly<Record<string, readonly string[]>> = {
  "security_decision_events.action": DECISIONS,
  ...Object.fromEntries(
    ["exec_events", "fs_events", "lifecycle_events", "policy_mutations"].flatMap((table) => [
      [`${table}.decision`, DECISIONS],
      [`${table}.outcome`, OUTCOMES],
    ]),
  ),
};

/** In Node 20, and not yet among the compiler's types of that year. */
type WellFormed = string & { isWellFormed(): boolean };

/** Null when the value fits, otherwise what is wrong with it. */
type Check = (value: unknown) => string | null;

const CHECKS: ReadonlyMap<LedgerTable, readonly Check[]> = new Map(
  (Object.keys(COLUMNS) as LedgerTable[]).map((table) => [
    table,
    COLUMNS[table].map((column) => checkOf(table, column)),
  ]),
);

/** Throws `bad_row`, which names the column. The row itself is returned, not a copy. */
export function parseRow(row: unknown): Row {
  if (!Array.isArray(row)) throw badRow("it is no list");
  const table: unknown = row[0];
  if (!isTable(table)) throw badRow("it names no table");
  const checks = CHECKS.get(table) ?? [];
  if (row.length !== checks.length + 1) {
    throw badRow(`${table} has ${checks.length} columns, it has ${row.length - 1}`);
  }
  for (let at = 0; at < checks.length; at++) {
    const fault = checks[at]?.(row[at + 1]) ?? null;
    if (fault !== null) throw badRow(`${table}.${COLUMNS[table][at]?.name} ${fault}`);
  }
  if (table === BODY_TABLE && sha256(String(row[5])) !== row[1]) {
    throw badRow(`${table}.hash is not the SHA-256 of its body`);
  }
  return row as unknown as Row;
}

function badRow(reason: string) {
  return ledgerFailure("bad_row", `Cannot append row: ${reason}`);
}

function checkOf(table: LedgerTable, column: Column): Check {
  const bytesMax =
    table === BODY_TABLE && column.name === "body" ? LEDGER_LIMITS.bodyBytesMax : LEDGER_LIMITS.textBytesMax;
  const check = kindCheck(column.kind, bytesMax, WORDS[`${table}.${column.name}`]);
  return column.isOptional ? (value) => (value === null ? null : check(value)) : check;
}

function kindCheck(kind: Column["kind"], bytesMax: number, words: readonly string[] | undefined): Check {
  switch (kind) {
    case "text":
      if (words !== undefined) {
        return (value) => (words.includes(value as string) ? null : `is none of ${words.join(", ")}`);
      }
      return (value) => textFault(value, bytesMax);
    case "json":
      return (value) => textFault(value, bytesMax) ?? jsonFault(value as string);
    case "int":
      return (value) => (Number.isSafeInteger(value) ? null : "is no safe integer");
    case "flag":
      return (value) => (value === 0 || value === 1 ? null : "is neither 0 nor 1");
    case "real":
      return (value) => (Number.isFinite(value) ? null : "is no finite number");
    case "time":
      return (value) =>
        typeof value === "number" && value >= 0 && value <= TIME_MS_MAX ? null : "is no time in milliseconds";
  }
}

function textFault(value: unknown, bytesMax: number): string | null {
  if (typeof value !== "string") return "is no text";
  // A unit of UTF-16 is at most three bytes.
  if (value.length * 3 > bytesMax && Buffer.byteLength(value) > bytesMax) return `is over ${bytesMax} bytes`;
  // Half a character cannot be stored as UTF-8: what would be read is not what was hashed.
  return (value as WellFormed).isWellFormed() ? null : "is no well-formed text";
}

function jsonFault(text: string): string | null {
  if (text === "[]" || text === "{}") return null;
  try {
    JSON.parse(text);
    return null;
  } catch {
    return "is no JSON";
  }
}
