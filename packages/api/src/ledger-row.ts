/** What a table of a ledger can hold: checked by whoever sends rows, and again by the ledger. */

import { BODY_TABLE, type Cell, fillLater, rowText, sha256 } from "./ledger-chain.ts";
import { LEDGER_ROW_LIMITS } from "./ledger-limits.ts";
import {
  LEDGER_TABLE_NAMES,
  LEDGER_TABLES,
  type LedgerTable,
  type LedgerTableRow,
  OUTCOMES,
} from "./ledger-table.ts";
import { utf8Text } from "./utf8-text.ts";

export { LEDGER_ROW_LIMITS } from "./ledger-limits.ts";

export interface LedgerColumn {
  readonly name: string;
  readonly kind: "text" | "int" | "real" | "json" | "flag" | "time";
  readonly isOptional: boolean;
  /** The version that brought it. */
  readonly since: number;
  /** It came later than its table. */
  readonly isLater: boolean;
}

/** The columns of each table, in the order in which rows bring them and hashes go over them. */
export const LEDGER_COLUMNS: Readonly<Record<LedgerTable, readonly LedgerColumn[]>> = {
  security_decision_events: columnsOf("security_decision_events"),
  security_rule_events: columnsOf("security_rule_events"),
  security_ask_events: columnsOf("security_ask_events"),
  exec_events: columnsOf("exec_events"),
  fs_events: columnsOf("fs_events"),
  lifecycle_events: columnsOf("lifecycle_events"),
  policy_mutations: columnsOf("policy_mutations"),
  event_body_blobs: columnsOf("event_body_blobs"),
  tool_calls: columnsOf("tool_calls"),
  net_events: columnsOf("net_events"),
};

function columnsOf(table: LedgerTable): LedgerColumn[] {
  const { since = 1, later = {}, columns }: LedgerTableRow = LEDGER_TABLES[table];
  return Object.entries(columns).map(([name, type]) => ({
    name,
    kind: type.replace("?", "") as LedgerColumn["kind"],
    isOptional: type.endsWith("?"),
    since: later[name] ?? since,
    isLater: Object.hasOwn(later, name),
  }));
}

export function isLedgerTable(name: unknown): name is LedgerTable {
  return typeof name === "string" && Object.hasOwn(LEDGER_COLUMNS, name);
}

const DECISIONS_TABLE = "security_decision_events";
const EVENT_AT = cellAt(DECISIONS_TABLE, "event");
const EVENT_HASH_AT = cellAt(DECISIONS_TABLE, "event_hash");

/** Where a column's value is in a row, whose first cell is its table. */
function cellAt(table: LedgerTable, column: string): number {
  return 1 + LEDGER_COLUMNS[table].findIndex(({ name }) => name === column);
}

const DECISIONS: readonly string[] = ["allow", "ask", "block"];

/** Columns whose words readers rely on. */
const WORDS: Readonly<Record<string, readonly string[]>> = {
  "security_decision_events.action": DECISIONS,
  ...Object.fromEntries(
    ["exec_events", "fs_events", "lifecycle_events", "policy_mutations", "tool_calls", "net_events"].flatMap(
      (table) => [
        [`${table}.decision`, DECISIONS],
        [`${table}.outcome`, OUTCOMES],
      ],
    ),
  ),
};

/** In Node 20, and not yet among the compiler's types of that year. */
type WellFormed = string & { isWellFormed(): boolean };

/** Null when the value fits, otherwise what is wrong with it. */
type Check = (value: unknown) => string | null;

const CHECKS: ReadonlyMap<LedgerTable, readonly Check[]> = new Map(
  LEDGER_TABLE_NAMES.map((table) => [table, LEDGER_COLUMNS[table].map((column) => checkOf(table, column))]),
);

/** Rows on their way to a ledger. */
export interface RowsMessage {
  /** A JSON list of rows in UTF-8, each without its body. */
  readonly rows: Uint8Array;
  /** Of the rows that have one, in their order, in UTF-8. */
  readonly bodies: readonly Uint8Array[];
}

/** `texts` are those of `rowText`, `bodies` those of the rows that have one. */
export function encodeRows(texts: readonly string[], bodies: readonly string[]): RowsMessage {
  return { rows: Buffer.from(`[${texts.join(",")}]`), bodies: bodies.map((body) => Buffer.from(body)) };
}

/** Of whole rows. */
export function messageOfRows(rows: readonly (readonly Cell[])[]): RowsMessage {
  return encodeRows(rows.map(rowText), rows.filter(hasBody).map(bodyOf));
}

function hasBody([table]: readonly Cell[]): boolean {
  return table === BODY_TABLE;
}

function bodyOf(row: readonly Cell[]): string {
  return String(row.at(-1));
}

/** What came, not yet checked. Throws SyntaxError for what is no JSON; null: it is no list. */
export function decodeRows({ rows, bodies }: RowsMessage): unknown[] | null {
  const list: unknown = JSON.parse(utf8Text(rows));
  if (!Array.isArray(list)) return null;
  let at = 0;
  for (const row of list as unknown[]) {
    if (!Array.isArray(row)) continue;
    if (row[0] === BODY_TABLE) {
      const body = bodies[at++];
      if (body !== undefined) row.push(utf8Text(body));
    } else fillLater(row);
  }
  return list as unknown[];
}

/** Why no table can hold a row (the table's name, then its columns in order); null: one can. */
export function ledgerRowFault(row: unknown): string | null {
  if (!Array.isArray(row)) return "it is no list";
  const table: unknown = row[0];
  if (!isLedgerTable(table)) return "it names no table";
  const checks = CHECKS.get(table) ?? [];
  if (row.length !== checks.length + 1) {
    return `${table} has ${checks.length} columns, it has ${row.length - 1}`;
  }
  for (let at = 0; at < checks.length; at++) {
    const fault = checks[at]?.(row[at + 1]) ?? null;
    if (fault !== null) return `${table}.${LEDGER_COLUMNS[table][at]?.name} ${fault}`;
  }
  return null;
}

/** The same of a stored body or event whose hash is another one: looked at by whoever did not make it. */
export function ledgerBodyFault(row: readonly unknown[]): string | null {
  const [table, hash] = row;
  if (table === BODY_TABLE && sha256(String(row.at(-1))) !== hash) {
    return `${table}.hash is not the SHA-256 of its body`;
  }
  if (table !== DECISIONS_TABLE || row[EVENT_AT] === null) return null;
  if (sha256(String(row[EVENT_AT])) === row[EVENT_HASH_AT]) return null;
  return `${table}.event_hash is not the SHA-256 of its event`;
}

function checkOf(table: LedgerTable, column: LedgerColumn): Check {
  const { bodyBytesMax, textBytesMax } = LEDGER_ROW_LIMITS;
  const bytesMax = table === BODY_TABLE && column.name === "body" ? bodyBytesMax : textBytesMax;
  const check = kindCheck(column.kind, bytesMax, WORDS[`${table}.${column.name}`]);
  return column.isOptional ? (value) => (value === null ? null : check(value)) : check;
}

function kindCheck(
  kind: LedgerColumn["kind"],
  bytesMax: number,
  words: readonly string[] | undefined,
): Check {
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
        typeof value === "number" && value >= 0 && value <= LEDGER_ROW_LIMITS.timeMsMax
          ? null
          : "is no time in milliseconds";
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
