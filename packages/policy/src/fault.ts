/** Where in a file: both count from 1, columns in UTF-16 units, as editors show them. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** The closed list of what can be wrong with a rule file, a rule or an edit. */
export const FAULT_CODES = [
  "syntax",
  "too_large",
  "unknown_key",
  "legacy_key",
  "wrong_source",
  "missing_key",
  "bad_value",
  "bad_name",
  "bad_priority",
  "duplicate_rule",
  "bad_expression",
  "unknown_field",
  "unknown_function",
  "bad_type",
  "bad_literal",
  "bad_pattern",
  "too_costly",
  "locked",
  "unknown_rule",
  "unknown_server",
] as const;
export type FaultCode = (typeof FAULT_CODES)[number];

/** One reason why a file or an edit is refused. `message` is for the person who wrote it. */
export interface PolicyFault {
  readonly code: FaultCode;
  readonly message: string;
  /** Absent for what did not come from a file. */
  readonly at: Position | undefined;
  /** The rule or setting it is about, as `profiles.rules.NAME`, `mcp.servers.NAME` or `limits.KEY`. */
  readonly subject: string | undefined;
}

export type Checked<T> =
  | { readonly kind: "ok"; readonly value: T }
  | { readonly kind: "refused"; readonly faults: readonly PolicyFault[] };

export function renderFault(fault: PolicyFault, file = "policy"): string {
  const place = fault.at === undefined ? file : `${file}:${fault.at.line}:${fault.at.column}`;
  return `${place}: ${fault.message} [${fault.code}]`;
}
