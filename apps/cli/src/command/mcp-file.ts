import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { Failure } from "@capsem/base";

/** A client that runs may write its file as well: the change is made again on what it wrote. */
const ATTEMPTS_MAX = 5;
/** A new file is the user's alone; one that exists keeps its mode. */
const NEW_FILE_MODE = 0o600;

/**
 * Changes a file as a whole or not at all; true when it is not what it was. `change` gets null for a file that does not
 * exist, and refuses what it cannot read by a Failure that says why.
 */
export async function changeFile(
  path: string,
  change: (text: string | null) => string | null,
): Promise<boolean> {
  // A link stays a link: people keep such files elsewhere.
  const target = existsSync(path) ? realpathSync(path) : path;
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
    const before = read(target);
    const after = changed(path, before, change);
    if (after === null || after === before) return false;
    if (replace(target, before, after)) return true;
  }
  throw new Failure("file_failed", `Cannot change ${JSON.stringify(path)}: somebody else keeps writing it`);
}

function changed(path: string, before: string | null, change: (text: string | null) => string | null) {
  try {
    return change(before);
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    const message = `Cannot change ${JSON.stringify(path)}: ${thrown.message}`;
    throw new Failure(thrown.kind, message, { cause: thrown });
  }
}

/** False when the file is no longer what the change was made on. */
function replace(target: string, before: string | null, after: string): boolean {
  mkdirSync(dirname(target), { recursive: true });
  const fresh = join(dirname(target), `.${basename(target)}.${process.pid}.tmp`);
  const mode = before === null ? NEW_FILE_MODE : statSync(target).mode & 0o777;
  rmSync(fresh, { force: true });
  const file = openSync(fresh, "wx", mode);
  try {
    writeFileSync(file, after);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  if (read(target) !== before) {
    rmSync(fresh);
    return false;
  }
  renameSync(fresh, target);
  return true;
}

function read(path: string): string | null {
  if (!existsSync(path)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(readFileSync(path));
  } catch (thrown) {
    if (thrown instanceof Error && "syscall" in thrown) throw thrown;
    throw new Failure("file_failed", `Cannot change ${JSON.stringify(path)}: it is not UTF-8`);
  }
}
