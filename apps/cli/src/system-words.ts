import { messageOf } from "@capsem/base";

const WORDS: Readonly<Record<string, string>> = {
  ENOENT: "it does not exist",
  EACCES: "you may not (EACCES)",
  EPERM: "you may not (EPERM)",
  EISDIR: "it is a folder",
  ENOTDIR: "a part of its path is no folder",
  EEXIST: "it is there already",
  ENOTEMPTY: "the folder is not empty",
  ELOOP: "a link is in the way",
  ENAMETOOLONG: "its name is too long",
  EROFS: "its disk is read-only",
  ENOSPC: "the disk is full (ENOSPC)",
  EDQUOT: "your disk quota is used up (EDQUOT)",
  EFBIG: "the file is too large (EFBIG)",
  EIO: "its device failed (EIO)",
  EBADF: "it is closed (EBADF)",
  EMFILE: "too many files are open (EMFILE)",
  ETXTBSY: "it is a program that runs (ETXTBSY)",
};

const VERBS: Readonly<Record<string, string>> = {
  scandir: "read folder",
  lstat: "look at",
  stat: "look at",
  realpath: "look at",
  mkdir: "make folder",
  unlink: "remove",
  rmdir: "remove",
};

/** Why a call of the operating system failed; a code that is rare stands for itself. */
export function systemReason(thrown: unknown): string {
  const code = thrown instanceof Error && "code" in thrown ? String(thrown.code) : null;
  return code === null ? messageOf(thrown) : (WORDS[code] ?? code);
}

export function systemVerb(syscall: string): string {
  return VERBS[syscall] ?? syscall;
}
