import type { ImagePowers } from "./powers.ts";
import { runCommand } from "./run-command.ts";

/** The powers of this very process. Linux only: the image is built by Debian's own tools. */
export function imagePowers(): ImagePowers {
  return {
    env: process.env,
    arch: process.arch,
    userId: process.getuid?.() ?? 0,
    pid: process.pid,
    run: runCommand,
  };
}
