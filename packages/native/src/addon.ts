import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { Failure, messageOf } from "@capsem/base";

/** What the compiled addon exports. Its arguments are trusted to be checked; only native.ts calls it. */
export interface Addon {
  memfdCreate(name: string, sizeBytes: number): number;
  addSeals(fd: number, seals: number): void;
  getSeals(fd: number): number;
  copyFileInto(sourceFd: number, targetFd: number, sizeBytes: number): number;
  socketPair(type: 0 | 1): [number, number];
  sendDescriptors(fd: number, payload: Uint8Array, fds: readonly number[], timeoutMs: number): void;
  receiveDescriptors(fd: number, bytesMax: number, timeoutMs: number): { payload: Uint8Array; fds: number[] };
  peerCredentials(fd: number): { pid: number; uid: number; gid: number };
  closeDescriptor(fd: number): void;
  eventDescriptor(): number;
  /** `cancelFd` is an eventDescriptor that cancels once it is readable; it stays open until the promise settles. */
  sendDescriptorsLater(
    fd: number,
    payload: Uint8Array,
    fds: readonly number[],
    timeoutMs: number,
    cancelFd: number,
  ): Promise<void>;
  receiveDescriptorsLater(
    fd: number,
    bytesMax: number,
    timeoutMs: number,
    cancelFd: number,
  ): Promise<{ payload: Uint8Array; fds: number[] }>;
  setParentDeathSignal(signal: number): void;
  landlockAbi(): number;
  setNoNewPrivileges(): void;
  limitFileSize(bytesMax: number): void;
  installFilter(program: Uint8Array): void;
  attempt(act: number): string;
}

const REMEDY = "run `npm run build`, which needs g++";

/** Loads the addon from a path. Throws `addon_missing` with the remedy when there is none that loads. */
export function loadAddon(path: string): Addon {
  if (!existsSync(path)) {
    throw new Failure("addon_missing", `Cannot load the native addon: it is not built; ${REMEDY}`, {
      detail: path,
    });
  }
  try {
    const addon: Addon = createRequire(path)(resolve(path));
    return addon;
  } catch (thrown) {
    throw new Failure("addon_missing", `Cannot load the native addon: it is of another machine; ${REMEDY}`, {
      cause: thrown,
      detail: messageOf(thrown),
    });
  }
}

/**
 * A built file: beside the bundle when the code runs from `dist/*.cjs`, and in the `dist` of the checkout when
 * it runs from source. `__dirname` exists in both: the bundles are CommonJS and the test runner provides it.
 */
export function builtPath(name: string): string {
  const beside = join(__dirname, name);
  return existsSync(beside) ? beside : resolve(__dirname, "../../../dist", name);
}
