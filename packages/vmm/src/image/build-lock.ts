import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { Failure, sleep } from "@capsem/base";
import { lockFile } from "@capsem/base/lock-file";
import { BUILD_TIMEOUT_MS, LOCK_RETRY_MS, PID_BYTES_MAX } from "./limits.ts";

export interface BuildLock {
  /** Names this lock's scratch folders: under the lock, all of that name are ours to remove. */
  readonly name: string;
  release(): Promise<void>;
}

export interface LockOptions {
  /** Where the images are, by its real path: two builders in one folder exclude each other. */
  readonly folder: string;
  readonly pid: number;
  readonly signal?: AbortSignal | undefined;
  /** Told once, by whom it is held as far as that is known. */
  readonly onWait?: (holderPid: string) => void;
}

/**
 * One builder at a time. The lock is on a file in a folder that only its user may write, so nobody else can hold it,
 * and the kernel frees it when the holder dies, however it dies. The file itself stays.
 */
export async function takeBuildLock(options: LockOptions): Promise<BuildLock> {
  const name = createHash("sha256").update(options.folder).digest("hex").slice(0, 16);
  const { O_RDWR, O_CREAT, O_NOFOLLOW } = constants;
  const file = await open(join(options.folder, "build.lock"), O_RDWR | O_CREAT | O_NOFOLLOW, 0o600);
  try {
    await takeTurn(file, options);
    await file.truncate(0);
    await file.write(`${options.pid}\n`, 0);
    return { name, release: () => file.close() };
  } catch (thrown) {
    await file.close();
    throw thrown;
  }
}

async function takeTurn(file: FileHandle, { signal, onWait }: LockOptions): Promise<void> {
  const deadline = AbortSignal.timeout(BUILD_TIMEOUT_MS);
  for (let isFirst = true; !lockFile(file.fd); isFirst = false) {
    if (isFirst) onWait?.(await holderOf(file));
    if (signal?.aborted === true) {
      throw new Failure("cancelled", "Stopped waiting for the image: cancelled");
    }
    if (deadline.aborted) throw new Failure("timeout", "Cannot build the image: another build does not end");
    await sleep(LOCK_RETRY_MS);
  }
  if (signal?.aborted === true) throw new Failure("cancelled", "Stopped waiting for the image: cancelled");
}

async function holderOf(file: FileHandle): Promise<string> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(PID_BYTES_MAX), 0, PID_BYTES_MAX, 0);
  return /^\d+/.exec(buffer.toString("latin1", 0, bytesRead))?.[0] ?? "unknown";
}
