// What the tests of this package share.
import { chmodSync, copyFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildNative } from "../build.mjs";

export const rootDir = fileURLToPath(new URL("../../..", import.meta.url));
export const distDir = `${rootDir}dist`;
export const launcherSource = `${rootDir}packages/native/launcher/capsem-launch.c`;

/** Compiles what changed, so that a test never runs yesterday's native code. */
export async function buildFixture(): Promise<void> {
  await buildNative(rootDir, distDir);
}

/** The kind of our failure or the code of Node's, and "nothing" when the call returns. */
export function kindOf(call: () => unknown): string {
  try {
    call();
  } catch (thrown) {
    if (thrown instanceof Error && "kind" in thrown) return String(thrown.kind);
    if (thrown instanceof Error && "code" in thrown) return String(thrown.code);
    throw thrown;
  }
  return "nothing";
}

/** A copy that any user may execute; the checkout may be out of their reach. The caller removes its folder. */
export function copyForAll(path: string): string {
  const folder = mkdtempSync(join(tmpdir(), "native-"));
  const copy = join(folder, basename(path));
  copyFileSync(path, copy);
  chmodSync(folder, 0o755);
  chmodSync(copy, 0o755);
  return copy;
}
