/** The closed list of a failed call's kinds (design, "Host MCP server"). */
export const FAILURE_KINDS = [
  /** The gateway or the service answered with an error; `status` and `code` say which. */
  "http",
  /** No answer: nobody listens, or the connection was lost. */
  "network",
  "invalid_input",
  "cancelled",
  "timeout",
  "internal",
  /** Refused or held by a rule. */
  "policy",
] as const;
export type FailureKind = (typeof FAILURE_KINDS)[number];

/** What a model reads of a failed call: no body, no token, no low-level cause. */
export interface FailureObject {
  readonly kind: FailureKind;
  readonly reason: string;
  readonly status?: number;
  /** The API's own kind, such as vm_not_found. */
  readonly code?: string;
  readonly rule_id?: string;
  readonly ask_id?: string;
  readonly retryable: boolean;
}

export class ToolFailure extends Error {
  readonly object: FailureObject;

  constructor(object: FailureObject, cause?: unknown) {
    super(object.reason, cause === undefined ? undefined : { cause });
    this.object = object;
  }
}
