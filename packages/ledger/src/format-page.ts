import { ENDS_IN, LEDGER_TABLES, LEDGER_VERSION, OUTCOMES } from "@capsem/api";
import { BODY_TABLE } from "./chain.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { COLUMNS, TABLES } from "./schema.ts";
import { LEDGER_PRODUCER } from "./store.ts";

const MIB = 1024 * 1024;

/** docs/ledger-format.md: what is written by hand, then the tables as they are. */
export function ledgerFormatPage(): string {
  return [...INTRODUCTION, ...TABLES.flatMap(tableLines), "", ...ENDING, ""].join("\n");
}

function tableLines(table: (typeof TABLES)[number]): string[] {
  return [
    "",
    `### ${table}`,
    "",
    `${LEDGER_TABLES[table].doc[0]?.toUpperCase()}${LEDGER_TABLES[table].doc.slice(1)}.`,
    "",
    COLUMNS[table]
      .map(({ name, kind, isOptional }) => `\`${name}\` ${kind}${isOptional ? "?" : ""}`)
      .join(" · "),
  ];
}

const ends = Object.entries(ENDS_IN)
  .map(([type, table]) => `\`${type}\` in \`${table}\``)
  .join(", ");

const INTRODUCTION: readonly string[] = [
  "# Format of a ledger",
  "",
  "Made from the tables of `packages/api` and the code of `packages/ledger`; a test compares. Why it is built this way:",
  "decision [0018](decisions/0018-ledger-process.md). Whoever has an export and this page can verify it with nothing but",
  "SHA-256 and Ed25519.",
  "",
  "A ledger is one SQLite database, `ledgers/<id>/session.db` in the home, in WAL mode (`session.db-wal` and",
  "`session.db-shm` belong to it while it is open). `<id>` is a VM's id, or `host` for what belongs to no VM. Ledgers that",
  "were set aside lie in `ledgers/<id>/archive/<time>/`.",
  "",
  "## Rows and the chain",
  "",
  "Each row of a table of evidence has a row in `ledger_chain`, in the order in which they were stored:",
  "",
  "| column | |",
  "|---|---|",
  "| `n` | its number in the chain, 1 and up without a gap |",
  "| `tbl`, `row_id` | where it is. `row_id` is `n`, but for a body that was stored before (below) |",
  "| `producer`, `generation`, `seq` | who wrote it, in which of its lives, and its number there: 1 and up without a gap |",
  "| `row_hash` | SHA-256 over the canonical text of the row |",
  "| `head` | SHA-256 over the head before it, followed by `row_hash` |",
  "",
  "Hashes are 64 lower-case hex digits, and are hashed as such: the head's input is 128 ASCII characters. The head before",
  "row 1 is the SHA-256 of the text `capsem-ledger VERSION ID`, so a ledger says whose it is and of which version.",
  "",
  "**Canonical text.** `JSON.stringify([producer, generation, seq, table, ...columns])` of ECMAScript, as UTF-8: no",
  "blanks, columns in the order of the table below, null for none, a flag as 0 or 1, `json` columns as the text they are.",
  `A row of \`${BODY_TABLE}\` is hashed without its column \`body\`: \`hash\` is the SHA-256 of that.`,
  "",
  `**Bodies.** A row of \`${BODY_TABLE}\` whose \`hash\`, \`kind\`, \`original_bytes\` and \`is_truncated\` are all there`,
  "already is not stored again: its row in the chain has the `row_id` of the first one, and is numbered and hashed like any other.",
  "",
  `**What the ledger writes.** Acts that nobody lived to end, with the producer \`${LEDGER_PRODUCER.producer}\` and the`,
  `generation \`${LEDGER_PRODUCER.generation}\`, numbered through the ledger's life. Their outcome is \`interrupted\`.`,
  "",
  "## Heads",
  "",
  "`ledger_heads` has heads that the service signed: `n`, `head`, `signature` (base64), `key_id` (the first 16 hex digits",
  "of the SHA-256 of the public key as SPKI DER). Signed is, with Ed25519, the UTF-8 of this text, with a line feed at the",
  "end of each line:",
  "",
  "```text",
  "capsem ledger head 1",
  "ID",
  "N",
  "HEAD",
  "```",
  "",
  `The newest ${LEDGER_LIMITS.headsMax} are kept: each covers all rows before it. The service keeps the last head of every ledger`,
  "in `checkpoints/` too, where the ledger process cannot write. The process that stores rows has no key.",
  "",
  "## What `verify` finds",
  "",
  "It walks the chain from row 1 and names the first row that is not what was written:",
  "",
  "| kind | |",
  "|---|---|",
  "| `altered` | the row's hash is another one, or a row stands in a table and in no chain |",
  "| `missing` | a row is gone from its table or from the chain, or a number of its producer was left out |",
  "| `reordered` | a head does not follow from the one before, or a producer's numbers go back |",
  "| `cut` | it has fewer rows than a checkpoint or a signed head says, or another head at the checkpoint |",
  "| `unsigned` | a kept head is not the chain's, or its signature is not of the service's key |",
  "| `unreadable` | SQLite cannot read it, or it is no ledger of this version |",
  "",
  "Not evidence, and not verified: `open_acts`, `ledger_producers`, `ledger_meta` but for its id and version, and the",
  "indexes. They follow from the rows.",
  "",
  "## Export",
  "",
  "JSON lines. The first:",
  "",
  "| field | |",
  "|---|---|",
  "| `capsem_ledger` | the version |",
  "| `ledger` | the id |",
  "| `rows`, `head` | how many rows follow, and the head after the last |",
  "| `genesis` | the head before row 1 |",
  "| `heads` | signed heads: `rows` (the `n` above), `head`, `signature`, `key_id` |",
  "| `tables` | the columns of each table, in order |",
  "",
  "Then a line for each row, in the order of the chain: `n`, `table`, `producer`, `generation`, `seq`, `row` (its columns in",
  `order), \`hash\`, \`head\`. The \`body\` of a row of \`${BODY_TABLE}\` is null where the same \`hash\` came in a line before.`,
  "",
  "To verify: count `n`; count `seq` for each pair of producer and generation; hash the canonical text and compare it with",
  "`hash`; hash each body and compare it with its `hash`; chain the heads from `genesis`, which follows from id and version;",
  "compare the last head and the count with the first line; verify the signatures with the service's public key.",
  "",
  "## Versions",
  "",
  `This is version ${LEDGER_VERSION}. A column is added at the end of its table, and a table at the end of the list, with a new`,
  "version. A program opens no ledger of a later version than its own. What is written is never rewritten.",
  "",
  "## Bounds",
  "",
  `A text has at most ${LEDGER_LIMITS.textBytesMax / 1024} KiB, a \`body\` ${LEDGER_LIMITS.bodyBytesMax / MIB} MiB: longer ones are cut by who sends them. A text is well-formed Unicode;`,
  "one with U+0000 is stored as a blob of its UTF-8, which changes nothing of its hash. A full ledger takes only the ends of",
  `open acts, what is about a VM's life, and changes of settings: ${LEDGER_LIMITS.reserveBytes / MIB} MiB are kept for them.`,
  "",
  "## Tables",
  "",
  "`int` is a whole number up to 2^53, `real` a finite number, `time` milliseconds since 1970, `flag` 0 or 1, `json` JSON",
  "text; `?` may be null. Each table has the column `row_id` before these.",
];

const ENDING: readonly string[] = [
  "## Intents and ends",
  "",
  "A decision is stored before its act, which one row of another table ends, with the same `event_id`:",
  `${ends}.`,
  "A decision of another type is complete by itself.",
  "",
  `How an act ended: ${OUTCOMES.map((outcome) => `\`${outcome}\``).join(", ")}. Where a producer comes back after the ledger had`,
  "given its act up, there are two ends, and the one that is not `interrupted` counts.",
];
