import { assert } from "@capsem/base";
import type { Addon } from "./addon.ts";
import { checkSize } from "./checks.ts";
import { guarded } from "./error.ts";
import { FILE_BYTES_MAX, FILTER_INSTRUCTION_BYTES, FILTER_INSTRUCTIONS_MAX } from "./limits.ts";
import type { Native } from "./native.ts";

/**
 * What can be tried without harm: the kernel refuses each with its own errno, so that "EPERM" is a filter's word.
 * The order is that of `attemptOf` in confinement.cc. The three sockets alone succeed where nothing forbids them.
 */
export const ACTS = [
  "execve",
  "fork",
  "ptrace",
  "process_vm_readv",
  "unshare",
  "setns",
  "mount",
  "io_uring_setup",
  "pidfd_getfd",
  "socket_inet",
  "socket_unix",
  "socket_netlink",
  "connect",
  "bind",
  "fast_open",
] as const;
export type Act = (typeof ACTS)[number];

export function confinement(
  addon: Addon,
): Pick<Native, "landlockAbi" | "setNoNewPrivileges" | "limitFileSize" | "installFilter" | "attempt"> {
  return {
    landlockAbi: () => addon.landlockAbi(),
    setNoNewPrivileges() {
      guarded("give up new privileges", () => addon.setNoNewPrivileges());
    },
    limitFileSize(bytesMax) {
      checkSize(bytesMax, FILE_BYTES_MAX);
      guarded("limit the size of files", () => addon.limitFileSize(bytesMax));
    },
    installFilter(program) {
      assert(program instanceof Uint8Array, "a filter is bytes");
      const count = program.length / FILTER_INSTRUCTION_BYTES;
      assert(Number.isInteger(count) && count > 0 && count <= FILTER_INSTRUCTIONS_MAX, "bad filter length");
      guarded("install a seccomp filter", () => addon.installFilter(program));
    },
    attempt(act) {
      const index = ACTS.indexOf(act);
      assert(index >= 0, `unknown act ${act}`);
      return addon.attempt(index);
    },
  };
}
