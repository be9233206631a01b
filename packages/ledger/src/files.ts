import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { ledgerFailure, systemFailure } from "./error.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { DATABASE_FILES, isLedgerId, ledgerPaths } from "./paths.ts";

/** Ids of the ledgers in a folder, in order: those that are there and those that were archived alone. */
export function ledgerIds(root: string): string[] {
  return readdirSync(root).filter(isLedgerId).sort().slice(0, LEDGER_LIMITS.ledgersMax);
}

export function hasLedger(root: string, ledger: string): boolean {
  return existsSync(ledgerPaths(root, ledger).database);
}

export function archiveCount(root: string, ledger: string): number {
  const { archive } = ledgerPaths(root, ledger);
  return existsSync(archive) ? readdirSync(archive).length : 0;
}

/** Moves a ledger's files aside; nobody has them open. Answers the name of their folder below `archive`. */
export function archiveLedger(root: string, ledger: string, nowMs: number): string {
  const { folder, archive } = ledgerPaths(root, ledger);
  if (!hasLedger(root, ledger)) {
    throw ledgerFailure("ledger_not_found", `Cannot archive ledger "${ledger}": there is none`);
  }
  if (archiveCount(root, ledger) >= LEDGER_LIMITS.archivesMax) {
    const message = `Cannot archive ledger "${ledger}": it has ${LEDGER_LIMITS.archivesMax} archives`;
    throw ledgerFailure("ledger_failed", message);
  }
  const name = freeName(archive, nowMs);
  return trying(`archive ledger "${ledger}"`, () => {
    mkdirSync(join(archive, name), { recursive: true, mode: 0o700 });
    // The log first: a database without its log would seem whole and lack its last rows.
    for (const file of [...DATABASE_FILES].reverse()) {
      if (existsSync(join(folder, file))) move(join(folder, file), join(archive, name, file));
    }
    for (const path of [join(archive, name), archive, folder]) syncFolder(path);
    return name;
  });
}

/** Removes a ledger with its archives; nobody has its files open. */
export function removeLedger(root: string, ledger: string): void {
  const { folder } = ledgerPaths(root, ledger);
  trying(`remove ledger "${ledger}"`, () => {
    rmSync(folder, { recursive: true, force: true });
    syncFolder(root);
  });
}

function freeName(archive: string, nowMs: number): string {
  const time = new Date(nowMs).toISOString().replace(/[:.]/g, "-");
  for (let count = 1; ; count++) {
    const name = count === 1 ? time : `${time}-${count}`;
    if (!existsSync(join(archive, name))) return name;
  }
}

/** Landlock's first version lets no file change its folder. */
function move(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (thrown) {
    if (!(thrown instanceof Error && "code" in thrown && thrown.code === "EXDEV")) throw thrown;
    copy(from, to);
    rmSync(from);
  }
}

/** By reads and writes: a confined process has no other call for it. */
function copy(from: string, to: string): void {
  const source = openSync(from, "r");
  const target = openSync(to, "wx", 0o600);
  try {
    const chunk = Buffer.alloc(COPY_BYTES);
    for (let count = readSync(source, chunk); count > 0; count = readSync(source, chunk)) {
      for (let at = 0; at < count; ) at += writeSync(target, chunk, at, count - at);
    }
    fsyncSync(target);
  } finally {
    closeSync(source);
    closeSync(target);
  }
}

const COPY_BYTES = 1024 * 1024;

/** A file, too: what it is told of is on the disk. */
export function syncFolder(path: string): void {
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

function trying<T>(what: string, work: () => T): T {
  try {
    return work();
  } catch (cause) {
    throw systemFailure(what, cause);
  }
}
