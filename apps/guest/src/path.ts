import { WIRE_LIMITS } from "@capsem/wire";
import { guestFailure } from "./guest-error.ts";

export const WORKSPACE = "/workspace";

/** Relative paths mean the workspace. Resolving is the kernel's, inside the root, with the user's rights. */
export function absolute(path: string | undefined): string {
  if (path === undefined) return WORKSPACE;
  if (path.includes("\0")) throw guestFailure("invalid_input", "Cannot use path: it holds a NUL");
  const whole = path.startsWith("/") ? path : `${WORKSPACE}/${path}`;
  if (Buffer.byteLength(whole) > WIRE_LIMITS.pathBytesMax) {
    throw guestFailure("invalid_input", "Cannot use path: it is too long");
  }
  return whole;
}
