import { createHash, createPublicKey, verify } from "node:crypto";
import * as z from "zod";

const headLine = z.object({
  capsem_ledger: z.number(),
  ledger: z.string(),
  rows: z.number(),
  head: z.string(),
  heads: z.array(z.object({ rows: z.number(), head: z.string(), signature: z.string() })),
  tables: z.record(z.string(), z.array(z.string())),
});
const rowLine = z.object({
  n: z.number(),
  table: z.string(),
  producer: z.string(),
  generation: z.string(),
  seq: z.number(),
  row: z.array(z.union([z.string(), z.number(), z.null()])),
  hash: z.string(),
  head: z.string(),
});
const sha256 = (text: string) => createHash("sha256").update(text, "utf8").digest("hex");

export interface Verdict {
  readonly rows: number;
  /** Up to the last head that was signed. */
  readonly signedRows: number;
}

/** What somebody writes who has docs/ledger-format.md, an export and the public key as PEM. Throws the first fault. */
export function verifyExport(text: string, publicKey: string): Verdict {
  const [first = "", ...lines] = text.trimEnd().split("\n");
  const { ledger, rows, head: last, heads, tables } = headLine.parse(JSON.parse(first));
  let head = sha256(`capsem-ledger 1 ${ledger}`);
  const headAt = new Map([[0, head]]);
  const seqs = new Map<string, number>();
  const bodies = new Set<string>();
  for (const [index, line] of lines.entries()) {
    const found = rowLine.parse(JSON.parse(line));
    const { n, table, producer, generation, seq, row } = found;
    const isBody = table === "event_body_blobs";
    const [hash, , , , body] = row;
    const hashed = isBody ? row.slice(0, 4) : row;
    const name = JSON.stringify([producer, generation]);
    expectSame(`number of row ${index + 1}`, n, index + 1);
    expectSame(`producer's number of row ${n}`, seq, (seqs.get(name) ?? 0) + 1);
    expectSame(
      `hash of row ${n}`,
      found.hash,
      sha256(JSON.stringify([producer, generation, seq, table, ...hashed])),
    );
    const cell = (column: string) => row[tables[table]?.indexOf(column) ?? -1];
    const event = cell("event");
    if (typeof event === "string") expectSame(`event of row ${n}`, sha256(event), cell("event_hash"));
    if (isBody && typeof body === "string") bodies.add(sha256(body));
    if (isBody) expectSame(`body of row ${n}`, bodies.has(String(hash)), true);
    head = sha256(head + found.hash);
    expectSame(`head of row ${n}`, found.head, head);
    seqs.set(name, seq);
    headAt.set(n, head);
  }
  expectSame("rows", lines.length, rows);
  expectSame("last head", last, head);
  for (const { rows: signed, head: was, signature } of heads) {
    const words = `capsem ledger head 1\n${ledger}\n${signed}\n${was}\n`;
    const key = createPublicKey(publicKey);
    expectSame(`signed head ${signed}`, headAt.get(signed), was);
    expectSame(
      `signature of head ${signed}`,
      verify(null, Buffer.from(words), key, Buffer.from(signature, "base64")),
      true,
    );
  }
  return { rows, signedRows: Math.max(0, ...heads.map((each) => each.rows)) };
}

function expectSame(what: string, found: unknown, right: unknown): void {
  if (found !== right) throw new Error(`${what} is ${found}, not ${right}`);
}
