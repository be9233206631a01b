/** Errors of the file system, which have a code; anything else that is thrown is a bug. */
export function isFileError(thrown: unknown): thrown is NodeJS.ErrnoException {
  return thrown instanceof Error && "code" in thrown && typeof thrown.code === "string";
}

export function isMissing(thrown: unknown): boolean {
  return isFileError(thrown) && thrown.code === "ENOENT";
}
