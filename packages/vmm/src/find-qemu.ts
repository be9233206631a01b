import type { spawnSync } from "node:child_process";
import { accessSync, constants, realpathSync } from "node:fs";
import { delimiter, isAbsolute, join } from "node:path";
import { vmmFailure } from "./error.ts";
import { isFileError } from "./file-error.ts";
import { VERSION_TIMEOUT_MS } from "./limits.ts";

export interface Qemu {
  /** Absolute, with links resolved. */
  binary: string;
  /** As QEMU says it, the packager's part included: a golden does not outlive an update. */
  version: string;
}

export interface FindQemuOptions {
  /** The PATH variable. */
  searchPath: string;
  spawnSync: typeof spawnSync;
}

const PROGRAM = "qemu-system-x86_64";
/** The first version with the machine that we pin. */
const VERSION_MIN = [7, 2] as const;

/** Null: there is none on the path. Throws `hypervisor_missing` for one that is of no use. */
export function findQemu({ searchPath, spawnSync }: FindQemuOptions): Qemu | null {
  const binary = locate(searchPath);
  if (binary === null) return null;
  const { status, stdout, error } = spawnSync(binary, ["--version"], {
    encoding: "utf8",
    timeout: VERSION_TIMEOUT_MS,
    env: {},
    stdio: ["ignore", "pipe", "ignore"],
  });
  const match = /version ((\d+)\.(\d+)[^\n]*)/.exec(status === 0 ? stdout : "");
  if (match === null) {
    throw vmmFailure("hypervisor_missing", "Cannot use QEMU: it does not say its version", {
      detail: binary,
      cause: error,
    });
  }
  const [, version = "", major, minor] = match;
  const [majorMin, minorMin] = VERSION_MIN;
  if (Number(major) < majorMin || (Number(major) === majorMin && Number(minor) < minorMin)) {
    const message = `Cannot use QEMU ${version.trim()}: ${majorMin}.${minorMin} or newer is needed`;
    throw vmmFailure("hypervisor_missing", message, { detail: binary });
  }
  return { binary, version: version.trim() };
}

function locate(searchPath: string): string | null {
  // A relative entry would mean another program in each folder that we are started from.
  for (const folder of searchPath.split(delimiter).filter(isAbsolute)) {
    const path = join(folder, PROGRAM);
    try {
      accessSync(path, constants.X_OK);
      return realpathSync(path);
    } catch (thrown) {
      if (!isFileError(thrown)) throw thrown;
    }
  }
  return null;
}
