// What the tests of this program share.
import { generateKeyPairSync, sign } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type LedgerHead, signedHeadText } from "@capsem/api";
import { messageOfRows } from "@capsem/api/ledger-row";
import { keyIdOf } from "@capsem/ledger";
import { onTestFinished } from "vitest";
import { type LedgerProcess, type LedgerProcessOptions, startLedger } from "./ledger-process.ts";

export const LEDGER = "vm_aaaaaaaaaaaaaaaa";

export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "ledger-app-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A ledger that is ready; it ends with the test, if it still runs. */
export async function readyLedger(options: LedgerProcessOptions): Promise<LedgerProcess> {
  const ledger = startLedger(options);
  onTestFinished(async () => {
    ledger.child.kill("SIGKILL");
    await ledger.exited;
  });
  await ledger.ready;
  return ledger;
}

export function openLedger(
  ledger: LedgerProcess,
  options: { id?: string; generation?: string; whole?: boolean; checkpoint?: LedgerHead | null } = {},
) {
  const { id = LEDGER, generation = "g1", whole = false, checkpoint = null } = options;
  return ledger.call("producer", "ledger.open", { ledger: id, generation, checkpoint, whole });
}

export function append(
  ledger: LedgerProcess,
  first: number,
  rows: (string | number | null)[][],
  options: { id?: string; generation?: string } = {},
) {
  const { id = LEDGER, generation = "g1" } = options;
  return ledger.call("producer", "ledger.append", { ledger: id, generation, first, ...messageOfRows(rows) });
}

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
const der = publicKey.export({ type: "spki", format: "der" });
export const PUBLIC_KEY = der.toString("base64");

export function signHead(ledger: LedgerProcess, head: LedgerHead, id = LEDGER) {
  const { rows, head: hash } = head;
  const signature = sign(null, Buffer.from(signedHeadText(id, { rows, head: hash })), privateKey).toString(
    "base64",
  );
  return ledger.call("producer", "ledger.sign", {
    ledger: id,
    rows,
    head: hash,
    signature,
    key_id: keyIdOf(der),
  });
}

export function verify(ledger: LedgerProcess, checkpoint: LedgerHead | null = null, id = LEDGER) {
  return ledger.call("reader", "read.verify", { ledger: id, checkpoint, public_key: PUBLIC_KEY });
}

/** The kind of the failure that a call ends with, or "done". */
export async function kindOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return "done";
  } catch (thrown) {
    return thrown instanceof Error && "kind" in thrown ? String(thrown.kind) : String(thrown);
  }
}
