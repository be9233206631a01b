import { closeSync, constants, fstatSync, openSync, read } from "node:fs";
import { ignore } from "@capsem/base";
import { type MuxStream, WIRE_LIMITS } from "@capsem/wire";
import { guestFailure } from "./guest-error.ts";
import { GUEST_LIMITS } from "./limits.ts";
import { isSystemError } from "./plain-file.ts";
import type { Zygote } from "./zygote.ts";

/**
 * The transport may still hold a piece whose write has resolved. It holds none that lies a whole credit behind it: the
 * host has granted those bytes again, so it has them. One piece is read ahead, one is written, two fill the credit.
 */
const BUFFERS = 2 + WIRE_LIMITS.streamCreditBytes / GUEST_LIMITS.filePieceBytes;

/**
 * A regular file that a helper opened with the user's rights, opened again through the helper's descriptor. Read
 * here, its bytes cross no other process: under emulation that is most of what a transfer costs.
 */
export class HandedFile {
  readonly #fd: number;
  readonly #buffers: Buffer[] = [];
  #pieces = 0;

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /** The helper may be closed afterwards. The caller closes the file. */
  static open(zygote: Zygote, descriptor: number): HandedFile {
    // A helper that has not been waited for keeps its process id, so the path is its own or none.
    if (zygote.hasExited || zygote.pid === undefined) throw lost();
    const fd = openOrLost(`/proc/${zygote.pid}/fd/${descriptor}`);
    if (fstatSync(fd).isFile()) return new HandedFile(fd);
    closeSync(fd);
    throw lost();
  }

  close(): void {
    closeSync(this.#fd);
  }

  /**
   * Moves `length` bytes from `offset`, or what there is of them; once. The next piece is read while the one before
   * waits for the host's credit. Never blocks the agent: a slow disk holds a thread of Node's pool.
   */
  async send(stream: MuxStream, offset: number, length: number): Promise<void> {
    let sent = 0;
    let next = this.#piece(offset, length);
    try {
      for (let bytes = await next; bytes.length > 0; bytes = await next) {
        sent += bytes.length;
        next = this.#piece(offset + sent, length - sent);
        await stream.write(bytes);
      }
    } finally {
      // The descriptor must not be closed under a read.
      await next.catch(() => undefined);
    }
  }

  #piece(position: number, most: number): Promise<Uint8Array> {
    const size = GUEST_LIMITS.filePieceBytes;
    const index = this.#pieces % BUFFERS;
    this.#pieces += 1;
    // Fresh pages for every piece would cost more than the copy into them.
    const buffer = this.#buffers[index] ?? Buffer.allocUnsafeSlow(size);
    this.#buffers[index] = buffer;
    const bytes = buffer.subarray(0, Math.min(most, size));
    const piece = new Promise<Uint8Array>((resolve, reject) => {
      read(this.#fd, bytes, 0, bytes.length, position, (error, count) => {
        if (error === null) resolve(bytes.subarray(0, count));
        else reject(guestFailure("file_failed", `Cannot read file: ${error.code}`, error));
      });
    });
    ignore(piece);
    return piece;
  }
}

function openOrLost(path: string): number {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch (error) {
    if (isSystemError(error)) throw lost(error);
    throw error;
  }
}

function lost(cause?: unknown): Error {
  return guestFailure("internal", "Cannot read file: the helper that opened it ended", cause);
}
