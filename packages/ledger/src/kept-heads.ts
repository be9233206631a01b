import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { type LedgerHead, signedHeadText } from "@capsem/api";
import { ledgerFailure } from "./error.ts";

/** A head as it was signed, and who says so. */
export interface SignedHead extends LedgerHead {
  /** Base64. */
  readonly signature: string;
  readonly keyId: string;
}

export interface HeadFault {
  readonly kind: "cut" | "unsigned";
  readonly message: string;
}

/** What is known of a chain beside the chain: the checkpoint out of the ledger's reach, and heads with a signature. */
export class KeptHeads {
  readonly #ledger: string;
  readonly #checkpoint: LedgerHead | null;
  readonly #signed: ReadonlyMap<number, SignedHead>;
  readonly #key: KeyObject | null;
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
  }

  /** Compares the head after a row. */
  check(at: LedgerHead): HeadFault | null {
    const signed = this.#signed.get(at.rows);
    if (signed !== undefined) {
      const fault = this.#checkSigned(signed, at);
      if (fault !== null) return fault;
      this.signedRows = at.rows;
    }
    if (this.#checkpoint === null || this.#checkpoint.rows !== at.rows) return null;
    if (this.#checkpoint.head === at.head) return null;
    return { kind: "cut", message: `the head after row ${at.rows} is not the one that was kept outside` };
  }

  /** After the last row of all. */
  checkEnd(rows: number): HeadFault | null {
    const checkpointRows = this.#checkpoint?.rows ?? 0;
    if (checkpointRows > rows) {
      return {
        kind: "cut",
        message: `it ends after row ${rows}, and had ${checkpointRows} when that was kept outside`,
      };
    }
    for (const head of this.#signed.values()) {
      if (head.rows <= rows) continue;
      return this.#isSigned(head)
        ? { kind: "cut", message: `it ends after row ${rows}, and had ${head.rows} when that was signed` }
        : {
            kind: "unsigned",
            message: `the signature of the head after row ${head.rows} is not the service's`,
          };
    }
    return null;
  }

  #checkSigned(signed: SignedHead, at: LedgerHead): HeadFault | null {
    if (!this.#isSigned(signed)) {
      return {
        kind: "unsigned",
        message: `the signature of the head after row ${at.rows} is not the service's`,
      };
    }
    if (signed.head === at.head) return null;
    return { kind: "unsigned", message: `the head after row ${at.rows} is not the one that was signed` };
  }

  #isSigned({ rows, head, signature }: SignedHead): boolean {
    if (this.#key === null) return true;
    const text = Buffer.from(signedHeadText(this.#ledger, { rows, head }), "utf8");
    return verify(null, text, this.#key, Buffer.from(signature, "base64"));
  }
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
