import { shownRequester } from "@capsem/api";
import { ledgerFailure } from "./error.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { COLUMNS, isTable } from "./schema.ts";
import type { Cell } from "./sqlite.ts";

/** A row by column names: what a reader makes entries from. */
export type Named = Readonly<Record<string, Cell>>;

/** Columns that a table has in all versions, for a SELECT, under names that begin with `prefix`. */
export function selected(table: string, alias: string, prefix: string): { sql: string; names: string[] } {
  const columns = isTable(table)
    ? COLUMNS[table].filter(({ isLater }) => !isLater).map(({ name }) => name)
    : [];
  return {
    sql: columns.map((name) => `${alias}."${name}"`).join(", "),
    names: columns.map((name) => `${prefix}${name}`),
  };
}

export function named(names: readonly string[], row: readonly Cell[]): Named {
  const result: Record<string, Cell> = {};
  for (let at = 0; at < names.length; at++) result[names[at] as string] = row[at] ?? null;
  return result;
}

export function isoTime(ms: Cell): string {
  return new Date(Number(ms)).toISOString();
}

/** At a whole character, with a sign that there was more. */
export function cutText(text: string, charactersMax: number): string {
  if (text.length <= charactersMax) return text;
  const end = /[\uD800-\uDBFF]/.test(text[charactersMax - 2] ?? "") ? charactersMax - 2 : charactersMax - 1;
  return `${text.slice(0, end)}…`;
}

export function textOrNull(
  cell: Cell | undefined,
  charactersMax: number = LEDGER_LIMITS.detailCharactersMax,
): string | null {
  return cell == null ? null : cutText(String(cell), charactersMax);
}

export function numberOrNull(cell: Cell | undefined): number | null {
  return typeof cell === "number" ? cell : null;
}

/** Sizes and times that a producer got wrong are no reason for a page to fail. */
export function countOrNull(cell: Cell | undefined): number | null {
  return typeof cell === "number" ? Math.max(0, cell) : null;
}

export function flagOrNull(cell: Cell | undefined): boolean | null {
  return typeof cell === "number" ? cell === 1 : null;
}

/** One of the words that rows were checked for when they came: another one was not written by a ledger. */
export function oneOf<W extends string>(words: readonly W[], cell: Cell | undefined, what: string): W {
  const found = words.find((word) => word === cell);
  if (found !== undefined) return found;
  throw ledgerFailure(
    "ledger_broken",
    `Cannot read the ledger: a row has the ${what} ${JSON.stringify(cell)}`,
  );
}

/** Who asked, of a row that says it. */
export function requesterOf({ requester, token_id: tokenId }: Named): string {
  return shownRequester(String(requester), tokenId == null ? null : String(tokenId));
}
