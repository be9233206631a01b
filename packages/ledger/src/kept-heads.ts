import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { type LedgerHead, signedHeadText } from "@capsem/api";
import { keyIdOf } from "./chain.ts";
import { ledgerFailure } from "./error.ts";

/** A head as it was signed, and who says so. */
export interface SignedHead extends LedgerHead {
  /** Base64. */
  readonly signature: string;
  readonly keyId: string;
}

export interface HeadFault {
  readonly kind: "cut" | "unsigned";
  /** After which row the head is. */
  readonly rows: number;
  readonly message: string;
}

/** What is known of a chain beside the chain: the checkpoint out of the ledger's reach, and heads with a signature. */
export class KeptHeads {
  readonly #ledger: string;
  readonly #checkpoint: LedgerHead | null;
  readonly #signed: ReadonlyMap<number, SignedHead>;
  readonly #key: KeyObject | null;
  readonly #keyId: string | null;
  /** Rows up to the last head that was signed and is the chain's. */
  signedRows = 0;

  constructor(
    ledger: string,
    checkpoint: LedgerHead | null,
    signed: readonly SignedHead[],
    key: KeyObject | null,
  ) {
    this.#ledger = ledger;
    this.#checkpoint = checkpoint;
    this.#signed = new Map(signed.map((head) => [head.rows, head]));
    this.#key = key;
    this.#keyId = key === null ? null : keyIdOf(key.export({ type: "spki", format: "der" }));
  }

  /** Compares the head after a row. */
  check(at: LedgerHead): HeadFault | null {
    const { rows } = at;
    const signed = this.#signed.get(rows);
    if (signed !== undefined) {
      if (!this.#isSigned(signed)) return forged(rows);
      if (signed.head !== at.head) {
        return {
          kind: "unsigned",
          rows,
          message: `the head after row ${rows} is not the one that was signed`,
        };
      }
      this.signedRows = rows;
    }
    if (this.#checkpoint === null || this.#checkpoint.rows !== rows) return null;
    if (this.#checkpoint.head === at.head) return null;
    return { kind: "cut", rows, message: `the head after row ${rows} is not the one that was kept outside` };
  }

  /** After the last row of all. */
  checkEnd(rows: number): HeadFault | null {
    const checkpointRows = this.#checkpoint?.rows ?? 0;
    if (checkpointRows > rows) return ended(rows, checkpointRows, "kept outside");
    for (const head of this.#signed.values()) {
      if (head.rows < 0) return forged(head.rows);
      if (head.rows > rows)
        return this.#isSigned(head) ? ended(rows, head.rows, "signed") : forged(head.rows);
    }
    // One that was signed was kept here first, and outside only then. Who names no key may know any head.
    if (this.#key === null || checkpointRows === 0 || this.#signed.has(checkpointRows)) return null;
    const message = `the signed head after row ${checkpointRows}, which was kept outside, is gone from it`;
    return { kind: "unsigned", rows: checkpointRows, message };
  }

  /** By the service's key, under its name, and in the one form that base64 has for it. */
  #isSigned({ rows, head, signature, keyId }: SignedHead): boolean {
    if (this.#key === null) return true;
    const bytes = Buffer.from(signature, "base64");
    if (keyId !== this.#keyId || bytes.toString("base64") !== signature) return false;
    const text = Buffer.from(signedHeadText(this.#ledger, { rows, head }), "utf8");
    return verify(null, text, this.#key, bytes);
  }
}

function forged(rows: number): HeadFault {
  return {
    kind: "unsigned",
    rows,
    message: `the signature of the head after row ${rows} is not the service's`,
  };
}

function ended(rows: number, before: number, how: string): HeadFault {
  return {
    kind: "cut",
    rows: rows + 1,
    message: `it ends after row ${rows}, and had ${before} when that was ${how}`,
  };
}

/** A public key of Ed25519: SPKI DER in base64. Throws `invalid_input`. */
export function parsePublicKey(text: string): KeyObject {
  let key: KeyObject;
  try {
    key = createPublicKey({ key: Buffer.from(text, "base64"), format: "der", type: "spki" });
  } catch (cause) {
    throw ledgerFailure("invalid_input", "Cannot verify signatures: the key is none that can be read", {
      cause,
    });
  }
  if (key.asymmetricKeyType === "ed25519") return key;
  throw ledgerFailure("invalid_input", "Cannot verify signatures: the key is not of Ed25519");
}
