import { NODE_FATAL, NODE_GROUPS, NODE_REFUSALS, NODE_RULES } from "./node-rules.ts";
import { PROBES, type Profile } from "./profile.ts";

const F_GETLK = 5;
const F_SETLK = 6;

/** Node's own are narrower: whoever opens files asks what is at their paths. */
const WIDER: readonly string[] = ["newfstatat", "statx"];

/**
 * The ledger: databases below its folder, which Landlock bounds, and the channels that it was started with. It has no
 * socket to make, nothing to start and nobody to signal.
 */
export const LEDGER_PROFILE: Profile = {
  name: "ledger",
  groups: [
    ...NODE_GROUPS,
    {
      why: "files of its databases and its archives, below its folder: Landlock judges every path",
      calls: [
        ...(["openat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir"] as const),
        ...(["rename", "renameat", "renameat2", "getdents64"] as const),
      ],
    },
    { why: "pages of its databases", calls: ["pread64", "pwrite64", "ftruncate"] },
    { why: "what is committed is on the disk", calls: ["fsync", "fdatasync"] },
    {
      why: "whether a database, its log and its shared memory are there, and of which size",
      calls: [
        "newfstatat",
        "statx",
        "stat",
        "lstat",
        "access",
        "faccessat",
        "faccessat2",
        "readlink",
        "readlinkat",
      ],
    },
    {
      why: "a log has its database's mode, and its owner where that is root's to give: of files that it holds",
      calls: ["fchmod", "fchown"],
    },
    { why: "the end of what it says on a channel", calls: ["shutdown"] },
  ],
  rules: [
    ...NODE_RULES.filter(({ call }) => !WIDER.includes(call)),
    {
      why: "F_GETFD, F_SETFD, F_GETFL, F_SETFL: a descriptor's own flags; F_GETLK, F_SETLK: locks of its databases",
      call: "fcntl",
      cases: [1, 2, 3, 4, F_GETLK, F_SETLK].map((equals) => [{ argument: 1, equals }]),
    },
    {
      why: "itself, to end by a signal that it caught",
      call: "kill",
      cases: [[{ argument: 0, equals: "self" }]],
    },
  ],
  refusals: NODE_REFUSALS,
  fatal: NODE_FATAL,
  probes: PROBES,
};
