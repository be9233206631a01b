import { Failure } from "@capsem/base";
import { withRule } from "./error-text.ts";

/** What is wrong with one file, and says nothing of the others. */
const OF_ONE_FILE: ReadonlySet<string> = new Set([
  "policy",
  "invalid_input",
  "too_large",
  "file_not_found",
  "file_exists",
  "file_not_permitted",
  "file_wrong_type",
  "file_failed",
]);

/** Why this one was not copied, where the others may be; null for what ends the whole. */
export function refusalOf(thrown: unknown): string | null {
  if (!(thrown instanceof Failure) || !OF_ONE_FILE.has(thrown.kind)) return null;
  return withRule(thrown, thrown.message).replace(/^Cannot [^:]*: /, "");
}

/** The service takes no tree while a rule judges single files: each is then to be copied by itself. */
export function needsFiles(thrown: unknown): boolean {
  return thrown instanceof Failure && thrown.kind === "policy" && thrown.facts?.needs_files === true;
}
