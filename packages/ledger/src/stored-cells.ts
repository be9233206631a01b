import type { Column } from "./schema.ts";
import type { Cell, Database } from "./sqlite.ts";

/*
 * SQLite compares by storage class: a text that is stored as a blob equals nothing, and reads the same. So does one with
 * U+0000 behind it, and one whose bytes are no UTF-8 where U+FFFD is read. None of them was written by an append.
 */

/**
 * SQL that is 1 where some cell may be stored in another way than an append stores it: cheap, and misses nothing but
 * bytes that are no UTF-8, which `mayBeOdd` sees. Such a row is looked at column by column.
 */
export function oddSql(columns: readonly Column[]): string {
  const of = (...kinds: readonly Column["kind"][]) =>
    columns.filter(({ kind }) => kinds.includes(kind)).map(({ name }) => `"${name}"`);
  const texts = of("text", "json");
  return [
    `instr(CAST(concat(${texts.join(", ")}) AS BLOB), x'00') > 0`,
    ...texts.map((name) => `${name} >= x''`),
    ...of("int", "flag", "time").map((name) => `typeof(${name}) NOT IN ('integer', 'null')`),
  ].join(" OR ");
}

/** `odd` is what `oddSql` was for the row. */
export function mayBeOdd(odd: Cell, values: readonly Cell[]): boolean {
  return odd === 1 || values.some((value) => typeof value === "string" && value.includes("\ufffd"));
}

/** The first column of a row that is not stored as an append stores its value; null for none. */
export function oddColumn(
  db: Database,
  {
    table,
    key,
    columns,
  }: { readonly table: string; readonly key: string; readonly columns: readonly Column[] },
  id: Cell,
  values: readonly Cell[],
): string | null {
  const cells = columns.map(({ name }) => `typeof("${name}"), hex(CAST("${name}" AS BLOB))`).join(", ");
  const found = db.prepare(`SELECT ${cells} FROM ${table} WHERE "${key}" = ?`).get(id) ?? [];
  const odd = columns.find(({ kind }, at) => !isAsWritten(kind, values[at] ?? null, found.slice(2 * at)));
  return odd === undefined ? null : odd.name;
}

function isAsWritten(kind: Column["kind"], value: Cell, [type, hex]: readonly Cell[]): boolean {
  if (value === null) return type === "null";
  if (kind === "text" || kind === "json") {
    const bytes = Buffer.from(String(value), "utf8").toString("hex").toUpperCase();
    return type === (String(value).includes("\0") ? "blob" : "text") && hex === bytes;
  }
  const isReal = kind === "real" || (kind === "time" && !Number.isInteger(value));
  return typeof value === "number" && type === (isReal ? "real" : "integer");
}
