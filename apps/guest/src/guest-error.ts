import { Bug, Failure, messageOf } from "@capsem/base";
import { GUEST_ERROR_KINDS, type GuestErrorKind } from "@capsem/wire";
import type { HelperError } from "./helper-protocol.ts";

export function guestFailure(
  kind: GuestErrorKind,
  message: string,
  cause?: unknown,
): Failure<GuestErrorKind> {
  return new Failure(kind, message, cause === undefined ? {} : { cause });
}

/** Anything thrown, as the host is told it. Bugs keep their text for the log. */
export function toGuestFailure(thrown: unknown): Failure<GuestErrorKind> {
  if (thrown instanceof Failure && isGuestKind(thrown.kind)) {
    return new Failure(thrown.kind, thrown.message, { cause: thrown });
  }
  const detail = thrown instanceof Error ? (thrown.stack ?? thrown.message) : messageOf(thrown);
  return new Failure("internal", "Cannot finish the request: the guest agent failed", {
    cause: thrown,
    detail,
  });
}

function isGuestKind(word: string): word is GuestErrorKind {
  return (GUEST_ERROR_KINDS as readonly string[]).includes(word);
}

const FILE_KIND_OF: Readonly<Record<string, GuestErrorKind>> = {
  ENOENT: "file_not_found",
  EEXIST: "file_exists",
  ENOTEMPTY: "file_exists",
  ENOTDIR: "file_wrong_type",
  EISDIR: "file_wrong_type",
  EINVAL: "file_wrong_type",
  ELOOP: "file_wrong_type",
  EXDEV: "file_wrong_type",
  EACCES: "file_not_permitted",
  EPERM: "file_not_permitted",
  EROFS: "file_not_permitted",
  ENOSPC: "disk_full",
  EDQUOT: "disk_full",
  EFBIG: "too_large",
  ENAMETOOLONG: "invalid_input",
};

/** `verb` and `path` are what was asked for: "read", "/workspace/a". */
export function fileFailure(error: HelperError, verb: string, path: string): Failure<GuestErrorKind> {
  const known = infrastructureFailure(error);
  if (known !== undefined) return known;
  // A relative path starts at the workspace; without it nothing relative exists.
  const kind = FILE_KIND_OF[error.errno] ?? "file_failed";
  return guestFailure(kind, `Cannot ${verb} "${short(path)}": ${short(error.text || error.errno)}`);
}

/** An error before the program was executed. */
export function startFailure(error: HelperError, program: string, cwd: string): Failure<GuestErrorKind> {
  const known = infrastructureFailure(error);
  if (known !== undefined) return known;
  if (error.step === "cwd") {
    const kind = FILE_KIND_OF[error.errno] ?? "file_failed";
    return guestFailure(kind, `Cannot start job in "${short(cwd)}": ${short(error.text || error.errno)}`);
  }
  if (error.errno === "EAGAIN" || error.errno === "ENOMEM") {
    return guestFailure("quota", `Cannot start job: the VM is out of processes or memory (${error.errno})`);
  }
  if (error.step === "exec") {
    if (error.errno === "E2BIG") {
      return guestFailure("too_large", "Cannot start job: its arguments and environment are too large");
    }
    const kind = error.errno === "ENOENT" ? "command_not_found" : "command_not_executable";
    return guestFailure(kind, `Cannot run "${short(program)}": ${short(error.text || error.errno)}`);
  }
  return guestFailure("internal", `Cannot start job: ${error.step} failed with ${error.errno}`);
}

function infrastructureFailure(error: HelperError): Failure<GuestErrorKind> | undefined {
  if (error.step === "namespace") {
    return guestFailure("wrong_state", "Cannot enter the workload: it has ended");
  }
  if (error.step === "request" || error.step === "control") {
    const bug = new Bug(`the helper refused the request: ${error.errno} ${error.text}`);
    return guestFailure("internal", "Cannot finish the request: the guest agent failed", bug);
  }
  return undefined;
}

function short(text: string): string {
  return text.length > 256 ? `${text.slice(0, 256)}…` : text;
}
