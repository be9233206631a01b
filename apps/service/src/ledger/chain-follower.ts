import { ENDS_IN, type LedgerHead, type LedgerResult, type LedgerTable } from "@capsem/api";
import {
  type Cell,
  genesisHead,
  LEDGER_PRODUCER,
  nextHead,
  rowHash,
  rowTextHash,
} from "@capsem/api/ledger-chain";
import { LEDGER_COLUMNS } from "@capsem/api/ledger-row";
import { Failure } from "@capsem/base";
import { LEDGER_LIMITS } from "./limits.ts";
import type { Encoded, WireRow } from "./row-code.ts";

export type ChainedRow = LedgerResult<"producer", "ledger.rows">["rows"][number];
/** Rows of the chain after one, up to another: some of them, and at least one. */
export type FetchRows = (after: number, until: number) => Promise<readonly ChainedRow[]>;

type Sendable = Pick<Encoded, "wire" | "text">;

interface Own {
  readonly seq: number;
  readonly hash: string;
  readonly row: WireRow;
}

interface Sent {
  readonly rows: readonly Own[];
  /** Where the chain stands when all of them, and nothing else, were stored. */
  readonly head: LedgerHead;
}

/** Under which the plan of the ledger process names the service's channels. */
export const SERVICE_PRODUCER = "service";
const TYPE_AT = column("security_decision_events", "type");

/**
 * One ledger's chain as the service computes it from what it sent. A head that the ledger answers is believed when it is
 * the continuation of the last one that is known: by the service's own rows, and by the ends that the ledger gives to
 * acts that nobody else will end. What was stored before this service lived has to continue the checkpoint, and its
 * rows are taken on the ledger's word.
 */
export class ChainFollower {
  readonly #ledger: string;
  /** The last head that was computed or was taken as the beginning; null: none yet. */
  #known: LedgerHead | null = null;
  /** Rows after the known head may be those of services before this one. */
  #hasPast = false;
  #generation = "";
  /** Rows of this generation up to the known head. */
  #seq = 0;
  #sent: Promise<Sent> | null = null;
  /** Acts that have not ended at the known head, with the table that they end in. */
  readonly #acts = new Map<string, LedgerTable>();

  constructor(ledger: string) {
    this.#ledger = ledger;
  }

  get known(): LedgerHead | null {
    return this.#known;
  }

  /**
   * Before the first opening in the service's life. Neither a checkpoint nor files: every row will be the service's.
   * Files alone have nothing that they could contradict, and are believed once.
   */
  begin(checkpoint: LedgerHead | null, hasFiles: boolean): void {
    if (this.#known !== null) return;
    this.#hasPast = checkpoint !== null || hasFiles;
    this.#known = checkpoint ?? (hasFiles ? null : { rows: 0, head: genesisHead(this.#ledger) });
  }

  /** Rows come under this name from now on. */
  enter(generation: string): void {
    if (this.#generation === generation) return;
    this.#generation = generation;
    this.#seq = 0;
    this.#sent = null;
  }

  /** Rows are on their way, the first with this number in its generation. Resolves when they are hashed; never rejects. */
  async send(first: number, rows: readonly Sendable[]): Promise<void> {
    this.#sent = this.#hash(first, rows);
    await this.#sent;
  }

  /** The ledger says that it has this head. Throws "ledger_broken" when it is not what it must be. */
  async follow(head: LedgerHead, fetch: FetchRows): Promise<void> {
    if (this.#known === null) {
      this.#settle(head);
      return;
    }
    const sent = (await this.#sent)?.rows.filter(({ seq }) => seq > this.#seq) ?? [];
    const expected = (await this.#sent)?.head;
    if (sent.length > 0 && expected?.rows === head.rows && expected.head === head.head) {
      for (const own of sent) this.#note(own);
      this.#settle(head);
    } else await this.#explain(head, sent, fetch);
  }

  /** Its files were set aside or removed: the next ledger of this name is a new one. */
  reset(): void {
    this.forget();
    this.#known = { rows: 0, head: genesisHead(this.#ledger) };
  }

  /** Nobody knows what its files are now: they are looked at as at the beginning. */
  forget(): void {
    this.#known = null;
    this.#hasPast = false;
    this.#generation = "";
    this.#seq = 0;
    this.#sent = null;
    this.#acts.clear();
  }

  async #hash(first: number, rows: readonly Sendable[]): Promise<Sent> {
    const hashed: Own[] = [];
    const generation = this.#generation;
    let { rows: n, head } = this.#known ?? { rows: 0, head: "" };
    for (const [at, { wire, text }] of rows.entries()) {
      // The rows are on their way already: whoever asks the service for something meanwhile comes first.
      if (at % LEDGER_LIMITS.hashedAtOnceMax === 0) await new Promise(setImmediate);
      const seq = first + at;
      if (seq <= this.#seq) continue;
      const origin = { producer: SERVICE_PRODUCER, generation, seq };
      const hash = rowTextHash(origin, text);
      hashed.push({ seq, hash, row: wire });
      head = nextHead(head, hash);
      n += 1;
    }
    return { rows: hashed, head: { rows: n, head } };
  }

  /** Row by row, as the ledger tells them: each has to be one that may be there. */
  async #explain(to: LedgerHead, sent: readonly Own[], fetch: FetchRows): Promise<void> {
    let { rows: n, head } = this.#known ?? to;
    const own = [...sent];
    const steps: (() => void)[] = [];
    const acts = new Map(this.#acts);
    if (to.rows < n) throw this.#lie(`it has ${to.rows} rows, and had ${n}`);
    while (n < to.rows) {
      const told = await fetch(n, to.rows);
      if (told.length === 0 || told.length > to.rows - n)
        throw this.#lie(`it does not say what row ${n + 1} is`);
      for (const each of told) {
        n += 1;
        const next = own[0];
        if (each.row === null && next?.hash === each.hash) {
          own.shift();
          steps.push(() => this.#note(next));
          noteAct(acts, next.row);
        } else if (!this.#hasPast) this.#checkEnding(n, each, acts, steps);
        head = nextHead(head, each.hash);
      }
    }
    if (head !== to.head)
      throw this.#lie(`its head after row ${n} does not follow from the rows that were sent`);
    for (const step of steps) step();
    this.#settle(to);
  }

  /** A row that the service did not send: the end of an act of its own that the ledger gave up, and nothing else. */
  #checkEnding(
    n: number,
    { hash, row }: ChainedRow,
    acts: Map<string, LedgerTable>,
    steps: (() => void)[],
  ): void {
    const [producer, generation, seq, table, ...cells] = row ?? [];
    const isLedgers = producer === LEDGER_PRODUCER.producer && generation === LEDGER_PRODUCER.generation;
    const eventId = String(cells[0]);
    const isEnd = isLedgers && acts.get(eventId) === table && outcomeOf(table, cells) === "interrupted";
    const isSaid = rowHash({ ...LEDGER_PRODUCER, seq: Number(seq) }, [table as Cell, ...cells]) === hash;
    if (!isEnd || !isSaid) throw this.#lie(`row ${n} of it was not sent by the service`);
    acts.delete(eventId);
    steps.push(() => this.#acts.delete(eventId));
  }

  #note({ seq, row }: Own): void {
    this.#seq = seq;
    noteAct(this.#acts, row);
  }

  #settle(head: LedgerHead): void {
    this.#known = head;
    this.#hasPast = false;
  }

  #lie(state: string): Failure {
    return new Failure("ledger_broken", `Cannot follow the chain of ledger "${this.#ledger}": ${state}`);
  }
}

/** A decision opens, the row of its table ends. */
function noteAct(acts: Map<string, LedgerTable>, row: readonly Cell[]): void {
  const [table, eventId] = row;
  const type = table === "security_decision_events" ? row[1 + TYPE_AT] : undefined;
  const ends = typeof type === "string" && Object.hasOwn(ENDS_IN, type) ? ENDS_IN[type] : undefined;
  if (ends !== undefined) acts.set(String(eventId), ends);
  else if (acts.get(String(eventId)) === table) acts.delete(String(eventId));
}

function outcomeOf(table: Cell | undefined, cells: readonly Cell[]): Cell {
  const at = column(table as LedgerTable, "outcome");
  return at < 0 ? null : (cells[at] ?? null);
}

function column(table: LedgerTable, name: string): number {
  return LEDGER_COLUMNS[table].findIndex((each) => each.name === name);
}
