import { createHash, createPublicKey, generateKeyPairSync, sign, verify } from "node:crypto";
import { type LedgerHead, signedHeadText } from "@capsem/api";
import { expect, test } from "vitest";
import { keyIdOf } from "./chain.ts";
import { exportLines } from "./export.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { LEDGER, LedgerRig } from "./testing/ledger-rig.ts";
import { act, intent } from "./testing/rows.ts";

/**
 * What a stranger writes who has read docs/ledger-format.md and nothing else: the fault, or null. `key` is the public
 * key as PEM.
 */
function strangerVerifies(text: string, key: string): string | null {
  const sha256 = (data: string) => createHash("sha256").update(data, "utf8").digest("hex");
  const [first = "", ...lines] = text.trimEnd().split("\n");
  const { ledger, rows, head: last, heads } = JSON.parse(first);
  let head = sha256(`capsem-ledger 1 ${ledger}`);
  const headAt = new Map([[0, head]]);
  const seqs = new Map<string, number>();
  const bodies = new Map<string, string>();
  for (const [index, line] of lines.entries()) {
    const { n, table, producer, generation, seq, row, hash, head: after } = JSON.parse(line);
    if (n !== index + 1) return `row ${index + 1} is missing`;
    const name = JSON.stringify([producer, generation]);
    if (seq !== (seqs.get(name) ?? 0) + 1) return `row ${n} is out of order`;
    seqs.set(name, seq);
    const values = table === "event_body_blobs" ? row.slice(0, 4) : row;
    if (sha256(JSON.stringify([producer, generation, seq, table, ...values])) !== hash)
      return `row ${n} is altered`;
    const body = table === "event_body_blobs" ? (row[4] ?? bodies.get(row[0])) : null;
    if (body !== null && sha256(body ?? "") !== row[0]) return `the body of row ${n} is altered`;
    if (body !== null) bodies.set(row[0], body);
    head = sha256(head + hash);
    if (head !== after) return `the head after row ${n} does not follow`;
    headAt.set(n, head);
  }
  if (lines.length !== rows || head !== last) return "the end is missing";
  for (const { rows: signed, head: was, signature } of heads) {
    const words = `capsem ledger head 1\n${ledger}\n${signed}\n${was}\n`;
    const isSigned = verify(null, Buffer.from(words), createPublicKey(key), Buffer.from(signature, "base64"));
    if (!isSigned || headAt.get(signed) !== was)
      return `the head after row ${signed} is not the one that was signed`;
  }
  return null;
}

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
const PEM = publicKey.export({ type: "spki", format: "pem" }).toString();

function exported(acts: number): string {
  const rig = new LedgerRig();
  rig.open();
  let head: LedgerHead = { rows: 0, head: "" };
  for (let n = 1; n <= acts; n++) {
    const body = n % 3 === 0 ? JSON.stringify({ same: "for every third" }) : undefined;
    head = rig.append([
      ...act({ n, stdoutPreview: `\0 \u{1F600} "${n}"`, ...(body === undefined ? {} : { body }) }),
    ]);
    if (n !== 3) continue;
    const signature = sign(null, Buffer.from(signedHeadText(LEDGER, head)), privateKey).toString("base64");
    rig.writer.sign(
      LEDGER,
      { rows: head.rows, head: head.head },
      signature,
      keyIdOf(publicKey.export({ type: "spki", format: "der" })),
    );
  }
  return [...exportLines(rig.reader())].join("");
}

test("a stranger who has read the page alone finds an export whole, and each forgery", () => {
  const text = exported(9);
  const lines = text.trimEnd().split("\n");
  expect(lines).toHaveLength(37);
  expect(strangerVerifies(text, PEM)).toBeNull();
  const other = generateKeyPairSync("ed25519").publicKey.export({ type: "spki", format: "pem" }).toString();
  expect(strangerVerifies(text, other)).toContain("is not the one that was signed");
  expect(strangerVerifies(text.replace("echo 4", "echo 5"), PEM)).toMatch(/altered/);
  expect(strangerVerifies(lines.filter((_, at) => at !== 5).join("\n"), PEM)).toBe("row 5 is missing");
  expect(strangerVerifies(lines.slice(0, -1).join("\n"), PEM)).toBe("the end is missing");
  const swapped = [...lines];
  [swapped[5], swapped[6]] = [swapped[6] ?? "", swapped[5] ?? ""];
  expect(strangerVerifies(swapped.join("\n"), PEM)).toBe("row 5 is missing");
});

test("an event beside its decision is part of the export, and is not changed unseen", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.append([...act({ n: 1, isInRow: true }), ...act({ n: 2 })]);
  const text = [...exportLines(rig.reader())].join("");
  expect(text).toContain("echo 1");
  expect(strangerVerifies(text, PEM)).toBeNull();
  const forged = text.replace('\\"process.command\\":\\"echo 1', '\\"process.command\\":\\"echo 7');
  expect(forged).not.toBe(text);
  expect(strangerVerifies(forged, PEM)).toBe("row 1 is altered");
});

test("an export goes out in parts, none larger than a slice and a row, and an empty one is a head alone", () => {
  const rig = new LedgerRig();
  rig.open();
  expect([...exportLines(rig.reader())]).toHaveLength(1);
  const body = "b".repeat(3 * 1024 * 1024);
  for (let n = 1; n <= 6; n++) rig.append(intent({ n, body: `${n}${body}` }));
  const parts = [...exportLines(rig.reader())];
  expect(parts.length).toBeGreaterThan(2);
  for (const part of parts) expect(part.length).toBeLessThan(LEDGER_LIMITS.sliceBytesMax + 4 * 1024 * 1024);
  expect(strangerVerifies(parts.join(""), PEM)).toBeNull();
});

test("a row that is gone is no shorter export", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.append(act({ n: 1 }));
  rig.tamper("DELETE FROM exec_events");
  expect(() => [...exportLines(rig.reader())]).toThrow("row 4 is gone from exec_events");
});
