import { writeSync } from "node:fs";
import { assert } from "@capsem/base";
import type { Addon } from "./addon.ts";
import { checkDescriptor, checkSending, checkSize, checkTimeout } from "./checks.ts";
import { guardedLater } from "./error.ts";
import { PASS_TIMEOUT_MS_DEFAULT, PASSED_PAYLOAD_BYTES_MAX } from "./limits.ts";
import type { Native } from "./native.ts";

/** How long a call that does not block may wait: a second by default, and no signal. */
export interface Waiting {
  timeoutMs?: number;
  /** Ends the call with `ECANCELED`. */
  signal?: AbortSignal | undefined;
}

export function transfers(addon: Addon): Pick<Native, "sendDescriptorsLater" | "receiveDescriptorsLater"> {
  return {
    sendDescriptorsLater(fd, payload, fds, { timeoutMs = PASS_TIMEOUT_MS_DEFAULT, signal } = {}) {
      checkDescriptor(fd);
      checkSending(payload, fds);
      checkTimeout(timeoutMs);
      return guardedLater(`send descriptors over ${fd}`, () =>
        cancellable(addon, signal, (cancelFd) =>
          addon.sendDescriptorsLater(fd, payload, fds, timeoutMs, cancelFd),
        ),
      );
    },
    receiveDescriptorsLater(fd, bytesMax, { timeoutMs = PASS_TIMEOUT_MS_DEFAULT, signal } = {}) {
      checkDescriptor(fd);
      checkSize(bytesMax, PASSED_PAYLOAD_BYTES_MAX);
      assert(bytesMax > 0, "descriptors need a payload");
      checkTimeout(timeoutMs);
      return guardedLater(`receive descriptors from ${fd}`, () =>
        cancellable(addon, signal, (cancelFd) =>
          addon.receiveDescriptorsLater(fd, bytesMax, timeoutMs, cancelFd),
        ),
      );
    },
  };
}

/**
 * An event that the waiting thread polls beside the socket, set by a signal or when Node goes down. It is ours to
 * close, after the thread is done with it.
 */
async function cancellable<T>(
  addon: Addon,
  signal: AbortSignal | undefined,
  start: (cancelFd: number) => Promise<T>,
): Promise<T> {
  const cancelFd = addon.eventDescriptor();
  // The count of an eventfd is eight bytes of the machine's order; any value but 0 makes it readable.
  const cancel = () => void writeSync(cancelFd, new Uint8Array(8).fill(1));
  try {
    if (signal?.aborted === true) cancel();
    else signal?.addEventListener("abort", cancel, { once: true });
    return await start(cancelFd);
  } finally {
    signal?.removeEventListener("abort", cancel);
    addon.closeDescriptor(cancelFd);
  }
}
