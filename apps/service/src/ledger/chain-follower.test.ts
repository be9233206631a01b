import type { LedgerHead, LedgerTable } from "@capsem/api";
import {
  type Cell,
  genesisHead,
  LEDGER_PRODUCER,
  nextHead,
  type Origin,
  rowHash,
  rowText,
} from "@capsem/api/ledger-chain";
import { LEDGER_COLUMNS } from "@capsem/api/ledger-row";
import { expect, test } from "vitest";
import { body, decision, kindOfLater, lifecycle, VM } from "../testing/ledger-rig.ts";
import { type ChainedRow, ChainFollower, type FetchRows, SERVICE_PRODUCER } from "./chain-follower.ts";
import { encodeRow, type WireRow } from "./row-code.ts";

const GENERATION = "gen_1";
const GENESIS = { rows: 0, head: genesisHead(VM) };

/** A ledger that stores what it is given, and tells it as the contract has it. */
class Chain {
  readonly told: ChainedRow[] = [];
  readonly heads: LedgerHead[] = [GENESIS];
  fetches = 0;

  get head(): LedgerHead {
    return this.heads.at(-1) ?? GENESIS;
  }

  own(first: number, rows: readonly WireRow[], generation = GENERATION): this {
    for (const [at, row] of rows.entries()) {
      this.store({ producer: SERVICE_PRODUCER, generation, seq: first + at }, row);
    }
    return this;
  }

  /** What the ledger writes itself, or somebody who says so. */
  store(origin: Origin, row: readonly Cell[], hash = rowHash(origin, row)): this {
    const isOwn = origin.producer === SERVICE_PRODUCER;
    this.told.push({ hash, row: isOwn ? null : [origin.producer, origin.generation, origin.seq, ...row] });
    const { rows, head } = this.head;
    this.heads.push({ rows: rows + 1, head: nextHead(head, hash) });
    return this;
  }

  readonly fetch: FetchRows = async (after, until) => {
    this.fetches += 1;
    // Two at a time, as a long way is told in several answers.
    return this.told.slice(after, Math.min(until, after + 2));
  };
}

function bodies(from: number, to: number): WireRow[] {
  return Array.from({ length: to - from }, (_, at) => encodeRow(body(from + at)));
}

const coded = (rows: readonly WireRow[]) => rows.map((wire) => ({ wire, text: rowText(wire) }));
const INTENT = encodeRow(decision("act"));

/** The end of an act as the ledger gives it. */
function ending(eventId: string, table: LedgerTable = "exec_events", outcome = "interrupted"): Cell[] {
  const known: Readonly<Record<string, Cell>> = { event_id: eventId, outcome, decision: "allow" };
  const cells = LEDGER_COLUMNS[table].map(({ name, kind, isOptional }) => {
    if (known[name] !== undefined) return known[name];
    return isOptional ? null : kind === "text" ? "" : kind === "json" ? "[]" : 0;
  });
  return [table, ...cells];
}

function followed(checkpoint: LedgerHead | null = null, hasFiles = false): ChainFollower {
  const follower = new ChainFollower(VM);
  follower.begin(checkpoint, hasFiles);
  follower.enter(GENERATION);
  return follower;
}

test("a head of the rows that were sent is believed, and nobody has to tell them", async () => {
  const chain = new Chain();
  const follower = followed();
  await follower.follow(chain.head, chain.fetch);
  for (let first = 1; first < 1_000; first += 333) {
    const rows = bodies(first, first + 333);
    await follower.send(first, coded(rows));
    await follower.follow(chain.own(first, rows).head, chain.fetch);
    expect(follower.known).toEqual(chain.head);
  }
  expect(chain.fetches).toBe(0);
});

test("rows that were stored and not acknowledged are known again, and sent again are not counted twice", async () => {
  const chain = new Chain();
  const follower = followed();
  const rows = bodies(1, 6);
  await follower.send(1, coded(rows));
  // The process died, and its successor says that three of them are there.
  await follower.follow(chain.own(1, rows.slice(0, 3)).head, chain.fetch);
  const more = bodies(1, 9);
  await follower.send(1, coded(more));
  await follower.follow(chain.own(4, more.slice(3)).head, chain.fetch);
  expect(follower.known).toEqual(chain.head);
});

test("acts that the ledger gave up are believed, between and behind the rows that were sent", async () => {
  const chain = new Chain();
  const follower = followed();
  const rows = [INTENT, ...bodies(0, 3)];
  await follower.send(1, coded(rows));
  chain.own(1, rows).store({ ...LEDGER_PRODUCER, seq: 1 }, ending("act"));
  await follower.follow(chain.head, chain.fetch);
  // Under another generation the numbers begin again.
  follower.enter("gen_2");
  await follower.send(1, coded([INTENT]));
  await follower.follow(chain.own(1, [INTENT], "gen_2").head, chain.fetch);
  await follower.follow(chain.store({ ...LEDGER_PRODUCER, seq: 2 }, ending("act")).head, chain.fetch);
  expect(follower.known).toEqual(chain.head);
});

test("what services before this one stored is believed where it continues the checkpoint", async () => {
  const chain = new Chain().own(1, bodies(0, 20), "gen_0");
  const checkpoint = chain.heads[7] ?? GENESIS;
  chain.store({ ...LEDGER_PRODUCER, seq: 1 }, ending("before"));
  const follower = followed(checkpoint, true);
  await follower.follow(chain.head, chain.fetch);
  expect(follower.known).toEqual(chain.head);
  const other = new Chain().own(1, bodies(100, 121), "gen_0");
  expect(await kindOfLater(followed(checkpoint, true).follow(other.head, other.fetch))).toBe("ledger_broken");
  const shorter = new Chain().own(1, bodies(0, 5), "gen_0");
  expect(await kindOfLater(followed(checkpoint, true).follow(shorter.head, shorter.fetch))).toBe(
    "ledger_broken",
  );
  // Once: from then on every row is the service's own.
  await follower.follow(chain.head, chain.fetch);
  chain.own(21, bodies(20, 21), "gen_0");
  expect(await kindOfLater(follower.follow(chain.head, chain.fetch))).toBe("ledger_broken");
});

test("files without a checkpoint are believed once, and no files are none", async () => {
  const chain = new Chain().own(1, bodies(0, 3), "gen_0");
  const follower = followed(null, true);
  await follower.follow(chain.head, chain.fetch);
  expect(follower.known).toEqual(chain.head);
  expect(await kindOfLater(followed().follow(chain.head, chain.fetch))).toBe("ledger_broken");
  follower.reset();
  follower.enter(GENERATION);
  expect(await kindOfLater(follower.follow(chain.head, chain.fetch))).toBe("ledger_broken");
  await follower.follow(GENESIS, chain.fetch);
});

const SENT = [INTENT, ...bodies(0, 3)];
const origin = (seq: number) => ({ producer: SERVICE_PRODUCER, generation: GENERATION, seq });
const ofLedger = { ...LEDGER_PRODUCER, seq: 1 };

/** What a ledger that was taken over may say after two honest rows and four more that were sent. */
test.each<[string, (chain: Chain) => Chain]>([
  ["rows that were sent are left out", (chain) => chain.own(1, SENT.slice(1))],
  ["two rows in another order", (chain) => chain.own(1, [SENT[1], SENT[0]] as WireRow[])],
  ["a row is another one", (chain) => chain.own(1, [INTENT, ...bodies(7, 10)])],
  ["a row more of the service's", (chain) => chain.own(1, SENT).store(origin(5), bodies(5, 6)[0] ?? [])],
  [
    "a row more of its own that is no end",
    (chain) => chain.own(1, SENT).store(ofLedger, encodeRow(decision("forged"))),
  ],
  ["an end of an act that there is not", (chain) => chain.own(1, SENT).store(ofLedger, ending("other"))],
  [
    "an end in another table than its act's",
    (chain) => chain.own(1, SENT).store(ofLedger, ending("act", "fs_events")),
  ],
  [
    "an end that was done",
    (chain) => chain.own(1, SENT).store(ofLedger, ending("act", "exec_events", "done")),
  ],
  [
    "an end of another producer",
    (chain) => chain.own(1, SENT).store({ ...ofLedger, producer: "proxy" }, ending("act")),
  ],
  ["the end of an act before its beginning", (chain) => chain.store(ofLedger, ending("act")).own(1, SENT)],
  [
    "the end of an act twice",
    (chain) =>
      chain
        .own(1, SENT)
        .store(ofLedger, ending("act"))
        .store({ ...ofLedger, seq: 2 }, ending("act")),
  ],
  [
    "an end whose hash is another row's",
    (chain) => chain.own(1, SENT).store(ofLedger, ending("act"), rowHash(origin(5), bodies(5, 6)[0] ?? [])),
  ],
])("a chain is not followed where %s", async (_, rewrite) => {
  const chain = new Chain();
  const follower = followed();
  await follower.send(1, coded(SENT));
  rewrite(chain);
  expect(await kindOfLater(follower.follow(chain.head, chain.fetch))).toBe("ledger_broken");
  expect(follower.known).toEqual(GENESIS);
  // Whatever the rest of its answers are.
  const honest = new Chain().own(1, SENT);
  expect(await kindOfLater(follower.follow(chain.head, honest.fetch))).toBe("ledger_broken");
});

test.each<[string, LedgerHead, FetchRows]>([
  ["fewer rows", { rows: 1, head: "x" }, async () => []],
  ["as many with another head", { rows: 4, head: "x" }, async () => []],
  ["more rows that it does not tell", { rows: 9, head: "x" }, async () => []],
  ["more rows than it has", { rows: 5, head: "x" }, async () => Array(7).fill({ hash: "x", row: null })],
  ["rows of no shape", { rows: 5, head: "x" }, async () => [{ hash: "x", row: [1, null] }]],
])("a head of %s is not followed", async (_, head, fetch) => {
  const chain = new Chain().own(1, SENT);
  const follower = followed();
  await follower.send(1, coded(SENT));
  await follower.follow(chain.head, chain.fetch);
  expect(await kindOfLater(follower.follow(head, fetch))).toBe("ledger_broken");
  expect(follower.known).toEqual(chain.head);
});

test("the end that the service sends closes an act, so that the ledger cannot end it again", async () => {
  const chain = new Chain();
  const follower = followed();
  const rows = [encodeRow(decision("life", "vm.lifecycle")), encodeRow(lifecycle("life", "stop"))];
  await follower.send(1, coded(rows));
  await follower.follow(chain.own(1, rows).head, chain.fetch);
  chain.store(ofLedger, ending("life", "lifecycle_events"));
  expect(await kindOfLater(follower.follow(chain.head, chain.fetch))).toBe("ledger_broken");
});
