/** What a client may read beside the words of a failure: the rule and the ask behind it, faults of a file. */
export type FailureFacts = Readonly<Record<string, unknown>>;

/**
 * The one error class of the product. `kind` is a word from a closed list that the package which throws
 * owns (see `packages/api/src/error-table.ts` and `packages/wire/src/message-table.ts`).
 *
 * `message` is written for the user: "Cannot verb object: current state", no full stop, no secret.
 * `detail` is for logs alone and never leaves the host.
 */
export class Failure<K extends string = string> extends Error {
  readonly kind: K;
  readonly retryable: boolean;
  readonly detail: string | undefined;
  readonly facts: FailureFacts | undefined;

  constructor(
    kind: K,
    message: string,
    options: { cause?: unknown; retryable?: boolean; detail?: string; facts?: FailureFacts } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "Failure";
    this.kind = kind;
    this.retryable = options.retryable ?? false;
    this.detail = options.detail;
    this.facts = options.facts;
  }
}

/** A bug in our own code: stops the work with a stack, is never shown as an operating error. */
export class Bug extends Error {
  override name = "Bug";
}

export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Bug(message);
}

/** For the last branch of an exhaustive switch. */
export function unreachable(value: never): never {
  throw new Bug(`unreachable value ${JSON.stringify(value)}`);
}

/** The text of anything that was thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
