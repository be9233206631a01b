import { Failure } from "@capsem/base";

/** - `confinement_refused`: a process could not be confined, and was not allowed to go on without. */
export type JailFailureKind = "confinement_refused" | "gatekeeper_lost" | "gatekeeper_refused";

export function jailFailure(
  kind: JailFailureKind,
  message: string,
  options: { cause?: unknown; detail?: string; retryable?: boolean } = {},
): Failure<JailFailureKind> {
  return new Failure(kind, message, options);
}
