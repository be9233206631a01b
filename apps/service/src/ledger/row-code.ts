import { StringDecoder } from "node:string_decoder";
import { type ColumnType, LEDGER_TABLES, type LedgerTable } from "@capsem/api";
import { assert } from "@capsem/base";
import type { AnyRow } from "../boundary/parts.ts";
import { LEDGER_LIMITS } from "./limits.ts";

/** As the contract has it: the table's name, then its columns in order; a flag is 0 or 1. */
export type WireRow = (string | number | null)[];

const COLUMNS = new Map(
  Object.entries(LEDGER_TABLES).map(([table, { columns }]) => [
    table,
    Object.entries(columns) as [string, ColumnType][],
  ]),
);

/** Rows that end acts: a ledger that is full takes them from its reserve. */
const ENDS: ReadonlySet<LedgerTable> = new Set([
  "exec_events",
  "fs_events",
  "lifecycle_events",
  "policy_mutations",
]);

export function encodeRow({ table, row }: AnyRow): WireRow {
  const values = row as Readonly<Record<string, unknown>>;
  const wire: WireRow = [table];
  for (const [name, type] of COLUMNS.get(table) ?? []) wire.push(cell(table, name, type, values[name]));
  return wire;
}

function cell(table: string, name: string, type: ColumnType, value: unknown): string | number | null {
  if (typeof value === "string") return type.startsWith("text") && name !== "body" ? cut(value) : value;
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return value ? 1 : 0;
  assert(value == null && type.endsWith("?"), `a row of ${table} has no ${name}`);
  return null;
}

/** The ledger takes no longer text in a field, and a row that says most of it is better than none. */
function cut(text: string): string {
  const { textBytesMax } = LEDGER_LIMITS;
  // A unit of UTF-16 is at most three bytes.
  if (text.length * 3 <= textBytesMax || Buffer.byteLength(text) <= textBytesMax) return text;
  const head = Buffer.from(text, "utf8").subarray(0, textBytesMax - CUT.length);
  // Half a character at the end is left out.
  return `${new StringDecoder("utf8").write(head)}${CUT}`;
}
const CUT = " [cut]";

/** What the encoded row takes, in UTF-8. */
export function bytesOf(row: WireRow): number {
  let bytes = 0;
  for (const value of row) bytes += typeof value === "string" ? Buffer.byteLength(value) : 9;
  return bytes;
}

/** What a waiting row weighs: its texts, and a share for the rest of it. */
export function charactersOf(row: AnyRow["row"]): number {
  let characters = 64;
  for (const value of Object.values(row)) if (typeof value === "string") characters += value.length;
  return characters;
}

/** Rows that end acts, and nothing else. */
export function areEnds(rows: readonly AnyRow[]): boolean {
  return rows.every(({ table }) => ENDS.has(table));
}

/**
 * Rows that belong together and that a ledger takes even when it is full: they end an act, or they are about the life
 * of the VM, which a full ledger never holds up, or about settings, which may give it more room.
 */
export function areEssential(rows: readonly AnyRow[]): boolean {
  return areEnds(rows) || rows.some(isOfLife);
}

function isOfLife(row: AnyRow): boolean {
  return row.table === "security_decision_events" && LIFE.has(row.row.type);
}

const LIFE: ReadonlySet<string> = new Set(["vm.lifecycle", "settings.change"]);
