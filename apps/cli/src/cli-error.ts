import { Bug, Failure, messageOf } from "@capsem/base";
import { systemReason, systemVerb } from "./system-words.ts";

/** The user's words make no command; `kind` is seen by nobody but the exit code. */
export function usageError(message: string): Failure {
  return new Failure("usage", message);
}

/** The error object of the API, also for errors of our own. */
export function errorObjectOf(failure: Failure, reason: string): { error: Record<string, unknown> } {
  const status = "status" in failure && typeof failure.status === "number" ? { status: failure.status } : {};
  const kind = failure.kind === "usage" ? "invalid_input" : failure.kind;
  return { error: { kind, reason, ...status, retryable: failure.retryable, ...failure.facts } };
}

/** Errors of the file system and of bugs, as what the user sees. */
export function toFailure(thrown: unknown): Failure {
  if (thrown instanceof Failure) return thrown;
  if (thrown instanceof Error && "code" in thrown && "syscall" in thrown) {
    const path = "path" in thrown && typeof thrown.path === "string" ? ` ${JSON.stringify(thrown.path)}` : "";
    const what = `${systemVerb(String(thrown.syscall))}${path}`;
    return new Failure("file_failed", `Cannot ${what}: ${systemReason(thrown)}`, { cause: thrown });
  }
  const detail = thrown instanceof Error ? (thrown.stack ?? "") : String(thrown);
  const kind = thrown instanceof Bug ? "bug" : "internal";
  return new Failure("internal", `Cannot finish: ${kind}, ${messageOf(thrown)}`, { cause: thrown, detail });
}
