import { createHash } from "node:crypto";
import { type FileHandle, open, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { isFileError } from "./file-error.ts";
import type { GoldenIdentity } from "./golden-key.ts";
import { MANIFEST_BYTES_MAX, STATE_BYTES_MAX } from "./limits.ts";
import { isObject } from "./qmp-line.ts";

/** The files of a golden's folder. */
export const GOLDEN_FILE = {
  /** The guest's memory, sparse. */
  ram: "ram",
  /** The device state, a migration stream. */
  state: "state",
  manifest: "manifest.json",
  /** Written last: without it the others mean nothing. */
  marker: "COMPLETE",
  /** Its modification time says when the golden was last used. */
  used: "used",
} as const;

/** What is written beside a golden. `identity` is for people; the key says it to the program. */
export interface GoldenManifest {
  version: 1;
  key: string;
  identity: GoldenIdentity;
  ramBytes: number;
  stateBytes: number;
  stateSha256: string;
}

export async function describeGolden(
  folder: string,
  key: string,
  identity: GoldenIdentity,
): Promise<GoldenManifest> {
  const ram = await stat(join(folder, GOLDEN_FILE.ram));
  const state = await readState(join(folder, GOLDEN_FILE.state));
  return {
    version: 1,
    key,
    identity,
    ramBytes: ram.size,
    stateBytes: state.bytes,
    stateSha256: state.sha256,
  };
}

/** Whether the folder holds a golden of that key whose parts are what its manifest says. */
export async function isGoldenWhole(folder: string, key: string): Promise<boolean> {
  try {
    await stat(join(folder, GOLDEN_FILE.marker));
    const manifest = parseManifest(await readBounded(join(folder, GOLDEN_FILE.manifest)));
    if (manifest === undefined || manifest.key !== key) return false;
    const ram = await stat(join(folder, GOLDEN_FILE.ram));
    const state = await readState(join(folder, GOLDEN_FILE.state));
    return (
      ram.size === manifest.ramBytes &&
      // A file of holes alone was never written: the machine went down before its bytes reached the disk.
      ram.blocks > 0 &&
      state.bytes === manifest.stateBytes &&
      state.sha256 === manifest.stateSha256
    );
  } catch (thrown) {
    if (isFileError(thrown)) return false;
    throw thrown;
  }
}

type Parsed = Pick<GoldenManifest, "key" | "ramBytes" | "stateBytes" | "stateSha256">;

function parseManifest(text: string): Parsed | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isObject(value) || value.version !== 1) return undefined;
  const { key, ramBytes, stateBytes, stateSha256, identity } = value;
  if (typeof key !== "string" || typeof ramBytes !== "number" || typeof stateBytes !== "number")
    return undefined;
  if (typeof stateSha256 !== "string" || !isObject(identity)) return undefined;
  // The RAM's size is also in the identity: a memory of another size would be refused by QEMU at best.
  if (typeof identity.memoryMib !== "number" || identity.memoryMib * 1024 ** 2 !== ramBytes) return undefined;
  return { key, ramBytes, stateBytes, stateSha256 };
}

async function readState(path: string): Promise<{ bytes: number; sha256: string }> {
  const { size } = await stat(path);
  if (size === 0 || size > STATE_BYTES_MAX) return { bytes: size, sha256: "" };
  const bytes = await readFile(path);
  return { bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}

async function readBounded(path: string): Promise<string> {
  const { size } = await stat(path);
  return size > MANIFEST_BYTES_MAX ? "" : readFile(path, "utf8");
}

/** Makes what was written to a file or folder survive the machine's end. */
export async function syncPath(path: string): Promise<void> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(path, "r");
    await handle.sync();
  } finally {
    await handle?.close();
  }
}
