import { ERRORS, type ErrorKind, toApiFailure } from "@capsem/api";
import type { Failure } from "@capsem/base";

export interface ErrorBody {
  readonly error: {
    readonly kind: ErrorKind;
    readonly reason: string;
    readonly status: number;
    readonly retryable: boolean;
    /** Beside them what the failure lets a client read: `rule_id`, `ask_id`, `faults`. */
    readonly [fact: string]: unknown;
  };
}

/** What the client sees of a failure: never its detail, cause or stack. */
export function errorBody(thrown: unknown): ErrorBody {
  const failure: Failure<ErrorKind> = toApiFailure(thrown);
  const { status } = ERRORS[failure.kind];
  return {
    error: {
      ...failure.facts,
      kind: failure.kind,
      reason: failure.message,
      status,
      retryable: failure.retryable,
    },
  };
}
