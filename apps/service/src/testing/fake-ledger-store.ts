import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from "node:fs";
import { basename, join } from "node:path";
import { ENDS_IN, LEDGER_TABLES, type LedgerHead, type LedgerTable, ledgerId } from "@capsem/api";
import { genesisHead, LEDGER_PRODUCER, nextHead, rowHash } from "@capsem/api/ledger-chain";
import { Failure } from "@capsem/base";

export type WireRow = readonly (string | number | null)[];

export interface StoredRow {
  readonly producer: string;
  readonly generation: string;
  /** In its generation, from 1. */
  readonly seq: number;
  readonly row: WireRow;
}

/** One ledger of the fake: lines of JSON in its folder, each row chained to the one before. */
export class FakeStore {
  readonly folder: string;
  readonly rows: StoredRow[] = [];
  readonly heads: string[] = [];
  bytes = 0;
  generation: string | null = null;
  readonly open = new Map<string, LedgerTable>();

  constructor(folder: string) {
    this.folder = folder;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    if (!existsSync(this.#path)) return;
    for (const line of readFileSync(this.#path, "utf8").split("\n")) {
      if (line === "") continue;
      const { head, ...stored } = JSON.parse(line) as StoredRow & { head: string };
      this.#learn(stored, head);
    }
  }

  get head(): LedgerHead {
    return { rows: this.rows.length, head: this.heads.at(-1) ?? this.#genesis };
  }

  /** Rows of this generation that are there. */
  get seq(): number {
    return this.#seqOf(this.generation);
  }

  /** The first row that is not what was written, 0 for none. */
  fault(): number {
    let head = this.#genesis;
    for (const [index, stored] of this.rows.entries()) {
      head = chained(head, stored);
      if (head !== this.heads[index]) return index + 1;
    }
    return 0;
  }

  /** As somebody does who can write to its files: the row is another, its head is what it was. */
  alter(row: number): void {
    const stored = this.rows[row - 1];
    if (stored === undefined) throw new Error(`there is no row ${row}`);
    this.rows[row - 1] = { ...stored, row: [...stored.row.slice(0, -1), "altered"] };
  }

  contradicts(checkpoint: LedgerHead): boolean {
    if (checkpoint.rows > this.rows.length) return true;
    return (checkpoint.rows === 0 ? this.#genesis : this.heads[checkpoint.rows - 1]) !== checkpoint.head;
  }

  commit(rows: readonly StoredRow[]): void {
    let { head } = this.head;
    const lines = rows.map((stored) => {
      head = chained(head, stored);
      this.#learn(stored, head);
      return `${JSON.stringify({ ...stored, head })}\n`;
    });
    appendFileSync(this.#path, lines.join(""));
  }

  /** Acts of other generations that nobody ended. */
  interrupt(nowMs: number): number {
    const left = [...this.open];
    const first = this.#seqOf(LEDGER_PRODUCER.generation) + 1;
    this.commit(
      left.map(([eventId, table], at) => ({
        ...LEDGER_PRODUCER,
        seq: first + at,
        row: endOf(eventId, table, nowMs),
      })),
    );
    return left.length;
  }

  #seqOf(generation: string | null): number {
    return this.rows.findLast((each) => each.generation === generation)?.seq ?? 0;
  }

  get #genesis(): string {
    return genesisHead(basename(this.folder));
  }

  get #path(): string {
    return join(this.folder, "session.jsonl");
  }

  #learn(stored: StoredRow, head: string): void {
    this.rows.push(stored);
    this.heads.push(head);
    this.bytes += JSON.stringify(stored.row).length;
    const fields = fieldsOf(stored.row);
    const table = stored.row[0] as LedgerTable;
    const ends = table === "security_decision_events" ? ENDS_IN[String(fields.type)] : undefined;
    if (ends !== undefined) this.open.set(String(fields.event_id), ends);
    else if (this.open.get(String(fields.event_id)) === table) this.open.delete(String(fields.event_id));
  }
}

export function chained(head: string, stored: StoredRow): string {
  return nextHead(head, rowHash(stored, stored.row));
}

/** By column name. */
export function fieldsOf(row: WireRow): Readonly<Record<string, string | number | null>> {
  const columns = Object.keys(LEDGER_TABLES[row[0] as LedgerTable].columns);
  return Object.fromEntries(columns.map((name, index) => [name, row[index + 1] ?? null]));
}

function endOf(eventId: string, table: LedgerTable, nowMs: number): WireRow {
  const known: Readonly<Record<string, string | number>> = {
    event_id: eventId,
    time_ms: nowMs,
    outcome: "interrupted",
  };
  const cells = Object.entries<string>(LEDGER_TABLES[table].columns).map(([name, type]) => {
    if (known[name] !== undefined) return known[name];
    if (type.endsWith("?")) return null;
    return type === "text" || type === "json" ? "" : 0;
  });
  return [table, ...cells];
}

/** Why the table cannot hold the row, or null. */
export function rowFault(row: WireRow): string | null {
  const [table] = row;
  if (typeof table !== "string" || !Object.hasOwn(LEDGER_TABLES, table)) return `no table ${String(table)}`;
  const columns = Object.entries<string>(LEDGER_TABLES[table as LedgerTable].columns);
  if (row.length !== columns.length + 1) return `${row.length - 1} columns instead of ${columns.length}`;
  for (const [index, [name, type]] of columns.entries()) {
    const value = row[index + 1] ?? null;
    if (value === null ? !type.endsWith("?") : isText(type) !== (typeof value === "string")) {
      return `${table}.${name} is not ${type}`;
    }
  }
  return null;
}

function isText(type: string): boolean {
  return type.startsWith("text") || type.startsWith("json");
}

/** All ledgers below one folder. */
export class FakeStores {
  readonly #folder: string;
  readonly #known = new Map<string, FakeStore>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  made(ledger: string): FakeStore {
    const known = this.#known.get(ledger) ?? new FakeStore(join(this.#folder, ledger));
    this.#known.set(ledger, known);
    return known;
  }

  found(ledger: string): FakeStore {
    if (!this.names().includes(ledger))
      throw new Failure("ledger_not_found", `Cannot find ledger "${ledger}"`);
    return this.made(ledger);
  }

  names(): string[] {
    const names = readdirSync(this.#folder).filter((name) => ledgerId.safeParse(name).success);
    return names.filter((name) => existsSync(join(this.#folder, name, "session.jsonl")));
  }

  archive(ledger: string): string {
    const { folder } = this.found(ledger);
    const name = `archive-${this.archived(ledger) + 1}`;
    renameSync(join(folder, "session.jsonl"), join(folder, `${name}.jsonl`));
    this.#known.delete(ledger);
    return name;
  }

  archived(ledger: string): number {
    return readdirSync(join(this.#folder, ledger)).filter((name) => name.startsWith("archive-")).length;
  }

  remove(ledger: string): void {
    this.found(ledger);
    rmSync(join(this.#folder, ledger), { recursive: true });
    this.#known.delete(ledger);
  }
}
