import { NODE_FATAL, NODE_GROUPS, NODE_REFUSALS, NODE_RULES } from "./node-rules.ts";
import { NO_FAST_OPEN, PROBES, type Profile } from "./profile.ts";

/** O_RDWR, O_CREAT, O_TRUNC, O_CLOEXEC: an output file of its own, always emptied. O_CREAT alone never reads another. */
const SPOOL_FLAGS = 0x2 | 0x40 | 0x200 | 0x80000;
/** O_LARGEFILE and O_NOFOLLOW, whichever bit of the two it is on a machine: neither opens more. */
const HARMLESS_FLAGS = 0x8000 | 0x20000;

/**
 * The owner of one VM, from the moment its hypervisor runs. It lives on what it holds: pipes to the hypervisor, its
 * channel to the service, its log. It opens output files below the VM's `jobs` folder, which Landlock bounds.
 */
export const OWNER_PROFILE: Profile = {
  name: "owner",
  groups: [
    ...NODE_GROUPS,
    { why: "ring files of job output", calls: ["pread64", "pwrite64", "unlink", "unlinkat"] },
    { why: "the hypervisor's end, reaped", calls: ["wait4"] },
    { why: "the end of what it says on a socket", calls: ["shutdown"] },
  ],
  rules: [
    ...NODE_RULES,
    {
      why: "F_GETFD, F_SETFD, F_GETFL, F_SETFL: a descriptor's own flags; Node puts back those of its standard streams",
      call: "fcntl",
      cases: [1, 2, 3, 4].map((equals) => [{ argument: 1, equals }]),
    },
    {
      why: "a golden's state file, handed to its hypervisor at its end",
      call: "sendmsg",
      cases: [
        [
          { argument: 0, equals: "control socket" },
          { argument: 2, ...NO_FAST_OPEN },
        ],
      ],
    },
    {
      why: "ring files of job output: created or emptied, and in no other way",
      call: "openat",
      cases: [[{ argument: 2, mask: ~HARMLESS_FLAGS, equals: SPOOL_FLAGS }]],
    },
    {
      why: "the hypervisor alone, and itself",
      call: "kill",
      cases: [[{ argument: 0, equals: "hypervisor" }], [{ argument: 0, equals: "self" }]],
    },
  ],
  refusals: NODE_REFUSALS,
  fatal: NODE_FATAL,
  probes: PROBES,
};
