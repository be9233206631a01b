import { StringDecoder } from "node:string_decoder";
import type { LedgerTable } from "@capsem/api";
import { apiFailure } from "@capsem/api";
import { BODY_TABLE, type Cell, rowText } from "@capsem/api/ledger-chain";
import {
  encodeRows,
  LEDGER_COLUMNS,
  LEDGER_ROW_LIMITS,
  type LedgerColumn,
  ledgerRowFault,
  type RowsMessage,
} from "@capsem/api/ledger-row";
import { assert } from "@capsem/base";
import type { AnyRow } from "../boundary/parts.ts";

/** As the contract has it: the table's name, then its columns in order; a flag is 0 or 1. */
export type WireRow = Cell[];

/** A row, and what is sent of it. */
export interface Encoded {
  readonly row: AnyRow;
  readonly wire: WireRow;
  /** What is hashed of it, and sent. */
  readonly text: string;
  /** What a waiting row weighs. */
  readonly characters: number;
  /** What it takes in a message, in UTF-8. */
  readonly bytes: number;
}

/** Throws as `encodeRow`. */
export function encoded(row: AnyRow): Encoded {
  const wire = encodeRow(row);
  const text = rowText(wire);
  const body = bodyOf(wire);
  const bytes = Buffer.byteLength(text) + (body === null ? 0 : Buffer.byteLength(body));
  return { row, wire, text, characters: charactersOf(wire), bytes };
}

/** Its text does not say it. */
function bodyOf(wire: WireRow): string | null {
  return wire[0] === BODY_TABLE ? String(wire.at(-1)) : null;
}

/** Of rows that are sent together. */
export function messageOfEncoded(rows: readonly Encoded[]): RowsMessage {
  const bodies: string[] = [];
  for (const { wire } of rows) {
    const body = bodyOf(wire);
    if (body !== null) bodies.push(body);
  }
  return encodeRows(
    rows.map(({ text }) => text),
    bodies,
  );
}

/** Rows that end acts: a ledger that is full takes them from its reserve. */
const ENDS: ReadonlySet<LedgerTable> = new Set([
  "exec_events",
  "fs_events",
  "lifecycle_events",
  "policy_mutations",
  "tool_calls",
  "net_events",
]);

/**
 * A row that the ledger takes: checked as it checks, but for a body's hash, which whoever made the row has just computed.
 * Texts that are too long are cut. Throws for a row that no table can hold: a mistake of ours, before anything is done.
 */
export function encodeRow(row: AnyRow): WireRow {
  const wire = wireOf(row);
  if (ledgerRowFault(wire) === null) return wire;
  const columns = LEDGER_COLUMNS[row.table];
  const fitted = wire.map((cell, at) => {
    const column = columns[at - 1];
    return column === undefined || typeof cell !== "string" ? cell : fit(row.table, column, cell);
  });
  const fault = ledgerRowFault(fitted);
  if (fault !== null) throw apiFailure("internal", `Cannot record the act: ${fault}`);
  return fitted;
}

function wireOf({ table, row }: AnyRow): WireRow {
  const values = row as Readonly<Record<string, unknown>>;
  const wire: WireRow = [table];
  for (const column of LEDGER_COLUMNS[table]) wire.push(cellOf(table, column, values[column.name]));
  return wire;
}

function cellOf(table: string, { name, isOptional }: LedgerColumn, value: unknown): Cell {
  if (typeof value === "string" || typeof value === "number") return value;
  if (typeof value === "boolean") return value ? 1 : 0;
  assert(value == null && isOptional, `a row of ${table} has no ${name}`);
  return null;
}

/** A body and an event stay as they are: their hash is over all of them. */
function fit(table: LedgerTable, { name, kind }: LedgerColumn, text: string): string {
  if (table === BODY_TABLE && name === "body") return text;
  if (table === "security_decision_events" && name === "event") return text;
  const whole = wellFormed(text);
  if (kind === "json") return fitJson(whole);
  return kind === "text" ? cut(whole, LEDGER_ROW_LIMITS.textBytesMax) : whole;
}

/** In Node 20, and not yet among the compiler's types of that year. */
type WellFormed = string & { toWellFormed(): string };

function wellFormed(text: string): string {
  return (text as WellFormed).toWellFormed();
}

/** The ledger takes no longer text in a field, and a row that says most of it is better than none. */
function cut(text: string, bytesMax: number): string {
  if (Buffer.byteLength(text) <= bytesMax) return text;
  const head = Buffer.from(text, "utf8").subarray(0, bytesMax - CUT.length);
  // Half a character at the end is left out.
  return `${new StringDecoder("utf8").write(head)}${CUT}`;
}
const CUT = " [cut]";

/** JSON again: of a list its first items and how many more there were, of all else its text. */
function fitJson(text: string): string {
  const { textBytesMax } = LEDGER_ROW_LIMITS;
  const value = parsed(text);
  if (value !== undefined && Buffer.byteLength(text) <= textBytesMax) return text;
  if (!Array.isArray(value)) return JSON.stringify(cut(text, Math.floor(textBytesMax / JSON_GROWTH)));
  const items: string[] = [];
  let bytes = MORE_BYTES;
  for (const item of value) {
    const json = JSON.stringify(item);
    bytes += Buffer.byteLength(json) + 1;
    if (bytes > textBytesMax) break;
    items.push(json);
  }
  const last: unknown = value.at(-1);
  const before = isMore(last) ? last.more - 1 : 0;
  return `[${[...items, JSON.stringify({ more: value.length - items.length + before })].join(",")}]`;
}
/** A character of a text is at most six in JSON. */
const JSON_GROWTH = 6;
/** Brackets, and the item that says how many more. */
const MORE_BYTES = 64;

function isMore(item: unknown): item is { more: number } {
  return typeof item === "object" && item !== null && "more" in item && typeof item.more === "number";
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // No JSON at all: its text is kept as one.
    return undefined;
  }
}

/** What a waiting row weighs: its texts, and a share for the rest of it. */
function charactersOf(row: WireRow): number {
  let characters = 64;
  for (const value of row) if (typeof value === "string") characters += value.length;
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
