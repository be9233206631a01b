import { join } from "node:path";
import { ensureOwnFolder, openOwnRoot } from "@capsem/base/own-folder";

/**
 * Makes what the gateway needs of a home and returns its real path. Throws Failure("folder_unsafe") where another user
 * could change what lies in it: that user's token would be the right one.
 */
export function openHome(path: string): string {
  const uid = process.getuid?.() ?? -1;
  const home = openOwnRoot(path, uid);
  for (const folder of [runFolder(home), logFolder(home)]) ensureOwnFolder(folder, uid);
  return home;
}

/** The parts of a home that the gateway knows. */
export function runFolder(home: string): string {
  return join(home, "run");
}

export function logFolder(home: string): string {
  return join(home, "logs");
}
