import type { ErrorKind, FactCredit } from "@capsem/api";
import type { Failure } from "@capsem/base";
import { FACT_LIMITS } from "./limits.ts";

export interface CreditGrant {
  readonly add: FactCredit;
  readonly refusing: { readonly kind: string; readonly message: string } | null;
}

export interface CreditParts {
  /** Of the scope's ledger, at this moment. */
  readonly room: () => { readonly refusal: Failure<ErrorKind> | null; readonly load: number };
  readonly send: (grant: CreditGrant) => void;
}

/**
 * What a proxy may still say: a window that opens again as the ledger's queue takes what came. While the ledger takes
 * nothing new the proxy is told why, and begins nothing.
 */
export class FactLoan {
  readonly #parts: CreditParts;
  #facts = 0;
  #bytes = 0;
  #refusing: string | null = null;

  constructor(parts: CreditParts) {
    this.#parts = parts;
  }

  /** It has little left, because the ledger is behind: worth another look soon. */
  get isShort(): boolean {
    return this.#refusing === null && this.#isLow;
  }

  get #isLow(): boolean {
    const { creditFacts, creditBytes } = FACT_LIMITS;
    return this.#facts * 2 < creditFacts || this.#bytes * 2 < creditBytes;
  }

  /** It has used so much of it. */
  spend(facts: number, bytes: number): void {
    this.#facts -= facts;
    this.#bytes -= bytes;
  }

  /**
   * Tells the proxy what has changed, if anything has. Called whenever it may have. `isDue`: says it again, to one whose
   * append was lost and that begins nothing until it hears.
   */
  renew(isDue = false): void {
    const { refusal, load } = this.#parts.room();
    const refusing = refusal === null ? null : { kind: refusal.kind, message: refusal.message };
    const words = refusing === null ? null : `${refusing.kind} ${refusing.message}`;
    const isOpen = refusing === null && load < FACT_LIMITS.queueShare;
    const { creditFacts, creditBytes } = FACT_LIMITS;
    if (!isDue && !(isOpen && this.#isLow) && words === this.#refusing) return;
    const add = {
      facts: isOpen ? Math.max(0, creditFacts - this.#facts) : 0,
      bytes: isOpen ? Math.max(0, creditBytes - this.#bytes) : 0,
    };
    this.#facts += add.facts;
    this.#bytes += add.bytes;
    this.#refusing = words;
    this.#parts.send({ add, refusing });
  }
}
