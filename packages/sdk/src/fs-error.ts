import { CapsemError } from "./error.ts";

/** Where a kind stands for several codes of node:fs, the operation decides, unless the words of the guest do. */
const CODE_OF: Readonly<Record<string, string>> = {
  file_not_found: "ENOENT",
  file_exists: "EEXIST",
  file_not_permitted: "EACCES",
  file_failed: "EIO",
  disk_full: "ENOSPC",
  too_large: "EFBIG",
  invalid_input: "EINVAL",
  cancelled: "ABORT_ERR",
  policy: "EACCES",
};
const WORDS: readonly (readonly [kind: string, words: RegExp, code: string])[] = [
  ["file_wrong_type", /not a directory|ENOTDIR/i, "ENOTDIR"],
  ["file_wrong_type", /is a directory|EISDIR/i, "EISDIR"],
  ["file_wrong_type", /too many (levels of )?symbolic links|ELOOP/i, "ELOOP"],
  ["file_wrong_type", /cross-device|EXDEV/i, "EXDEV"],
  ["file_exists", /not empty|ENOTEMPTY/i, "ENOTEMPTY"],
  ["file_not_permitted", /not permitted|EPERM/i, "EPERM"],
  ["file_not_permitted", /read-only|EROFS/i, "EROFS"],
];
const WRONG_TYPE: Readonly<Record<string, string>> = { open: "EISDIR", scandir: "ENOTDIR", mkdir: "ENOTDIR" };

/** Runs the work of one file operation; its error carries the code and path that node:fs would give. */
export async function withCode<T>(operation: string, path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    throw thrown instanceof CapsemError ? codedError(thrown, operation, path) : thrown;
  }
}

export function codedError(error: CapsemError, operation: string, path: string): CapsemError {
  const code = codeOf(error, operation);
  if (code === undefined || error.code !== undefined) return error;
  return new CapsemError(error.kind, error.message, {
    cause: error,
    retryable: error.retryable,
    outcome: error.outcome,
    code,
    path,
    ...(error.status === undefined ? {} : { status: error.status }),
    ...(error.ruleId === undefined ? {} : { ruleId: error.ruleId }),
    ...(error.askId === undefined ? {} : { askId: error.askId }),
  });
}

function codeOf({ kind, message }: CapsemError, operation: string): string | undefined {
  // After the last colon, so that a file's name decides nothing.
  const words = message.slice(message.lastIndexOf(":") + 1);
  const said = WORDS.find(([of, pattern]) => of === kind && pattern.test(words));
  if (said !== undefined) return said[2];
  if (kind === "file_wrong_type") return WRONG_TYPE[operation] ?? "EINVAL";
  if (kind === "file_exists" && operation === "rm") return "ENOTEMPTY";
  return CODE_OF[kind];
}
