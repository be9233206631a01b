import type { LedgerHead } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { AppendRequest, OpenRequest, Standing } from "@capsem/ledger";

/** What the writing thread is asked, and what it answers. */
export interface WriterCalls {
  readonly open: { readonly params: OpenRequest; readonly result: Standing & { interrupted: number } };
  readonly append: {
    /** `characters` of all its texts: how much of a transaction it is. */
    readonly params: AppendRequest & { readonly characters: number };
    readonly result: Standing;
  };
  readonly sign: {
    readonly params: { ledger: string; head: LedgerHead; signature: string; keyId: string };
    readonly result: null;
  };
  readonly close: { readonly params: { producer: string; ledger: string }; readonly result: null };
  readonly endProducer: { readonly params: { producer: string }; readonly result: readonly string[] };
  readonly release: { readonly params: { ledger: string }; readonly result: null };
  readonly limit: { readonly params: { bytesMax: number }; readonly result: null };
  /** The last one: all is committed, what is open is ended, the files are closed. */
  readonly end: { readonly params: null; readonly result: readonly string[] };
}
export type WriterVerb = keyof WriterCalls;

export type WriterMessage = {
  [V in WriterVerb]: { readonly id: number; readonly verb: V; readonly params: WriterCalls[V]["params"] };
}[WriterVerb];

/** Plain data: a failure loses its class on the way between threads. */
export type WriterAnswer =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly failure: ThrownWords };

export interface ThrownWords {
  /** Null: no failure of ours but a fault of the program. */
  readonly kind: string | null;
  readonly message: string;
  readonly retryable: boolean;
}

export function wordsOf(thrown: unknown): ThrownWords {
  if (thrown instanceof Failure) {
    return { kind: thrown.kind, message: thrown.message, retryable: thrown.retryable };
  }
  const message = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  return { kind: null, message, retryable: false };
}

export function thrownFrom({ kind, message, retryable }: ThrownWords): Error {
  return kind === null ? new Error(message) : new Failure(kind, message, { retryable });
}
