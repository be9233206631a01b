import type { ArgumentTest, Denials, Profile, Rule } from "./profile.ts";
import { EGRESS_PROFILE } from "./profile-egress.ts";
import { GATEWAY_PROFILE } from "./profile-gateway.ts";
import { HYPERVISOR_DENIALS } from "./profile-hypervisor.ts";
import { LEDGER_PROFILE } from "./profile-ledger.ts";
import { OWNER_PROFILE } from "./profile-owner.ts";
import { PROXY_PROFILE } from "./profile-worker.ts";

const PROFILES: readonly Profile[] = [OWNER_PROFILE, GATEWAY_PROFILE, LEDGER_PROFILE];

/** docs/confinement.md: what is written by hand, then the profiles as they are. */
export function confinementPage(): string {
  return [
    ...INTRODUCTION,
    ...PROFILES.flatMap((profile) => profileLines(profile)),
    ...profileLines(PROXY_PROFILE, "proxy, of the aggregator and of the builtin tools"),
    ...profileLines(EGRESS_PROFILE),
    ...denialLines(HYPERVISOR_DENIALS),
    "",
    "## Probes",
    "",
    "Each process tries these before it says that it is ready. One that is not denied ends it, with its name:",
    `${OWNER_PROFILE.probes.join("; ")}. The two opens are tried once more before the filter stands: then it is`,
    "Landlock that must deny them. Egress leaves out the two that are its work: an internet socket, and connecting one.",
    "",
    "## What ends the process",
    "",
    "A call that nothing of ours, of Node or of its libraries makes means that somebody else runs in there. After the",
    "probes these are fatal (SIGSYS); before, and for every other call that is not listed, the answer is EPERM:",
    "",
    `${OWNER_PROFILE.fatal.map((call) => `\`${call}\``).join(", ")}.`,
    ...ENDING,
    "",
  ].join("\n");
}

function profileLines(profile: Profile, subject: string = profile.name): string[] {
  return [
    "",
    `## System calls of the ${subject}`,
    "",
    "| allowed | only | why |",
    "|---|---|---|",
    ...profile.groups.map(
      ({ calls, why }) => `| ${calls.map((call) => `\`${call}\``).join(" ")} | | ${why} |`,
    ),
    ...profile.rules.map((rule) => `| \`${rule.call}\` | ${casesOf(rule)} | ${rule.why} |`),
    ...profile.refusals.map(({ call, errno, why }) => `| none: \`${call}\` fails with ${errno} | | ${why} |`),
  ];
}

function casesOf({ cases }: Rule): string {
  return cases.map((tests) => tests.map(wordsOf).join(" and ")).join(" or ");
}

function wordsOf(test: ArgumentTest): string {
  const subject = `argument ${test.argument}`;
  if ("atLeast" in test) return `${subject} ≥ ${test.atLeast}`;
  if ("isNull" in test) return `${subject} is null`;
  const { mask, equals } = test;
  const value = typeof equals === "number" ? `0x${equals.toString(16)}` : equals;
  return `${subject}${mask === undefined ? "" : ` & 0x${(mask >>> 0).toString(16)}`} = ${value}`;
}

/** A list of what is denied; all else is allowed. */
function denialLines(denials: Denials): string[] {
  return [
    "",
    `## System calls denied to the ${denials.name}`,
    "",
    "What is not listed is left to Landlock and to its own sandbox. What is denied fails with EPERM, from the first",
    "instruction on, and in every process that it could start.",
    "",
    "| denied | but | because of |",
    "|---|---|---|",
    ...denials.groups.map(
      ({ calls, why }) => `| ${calls.map((call) => `\`${call}\``).join(" ")} | | ${why} |`,
    ),
    ...denials.onlyWhen.map(
      (rule) => `| \`${rule.call}\` | allowed where ${casesOf(rule)} | all but this: ${rule.why} |`,
    ),
    ...denials.neverWhen.map((rule) => `| \`${rule.call}\` | only where ${casesOf(rule)} | ${rule.why} |`),
    ...denials.refusals.map(({ call, errno, why }) => `| \`${call}\` | fails with ${errno} | ${why} |`),
  ];
}

const INTRODUCTION: readonly string[] = [
  "# Confinement",
  "",
  "Made from the profiles of `packages/jail`; a test compares. Why it is built this way: decision",
  "[0010](decisions/0010-authority-by-grant.md). Linux only.",
  "",
  "## Who is confined by what",
  "",
  "| process | before it starts (`capsem-launch`) | once it has what it needs (`seal`) |",
  "|---|---|---|",
  "| owner | Landlock: Node's and QEMU's own files to read and execute, and how large the kernel's large pages are, its VM's `jobs` folder, `/dev/null` and, where it is used, `/dev/kvm` to write. An empty network namespace. No other descriptor, a cleared environment, no new privileges. As root: no capability but `setuid`, `setgid` and `kill` | a limit on the size of its files, and seccomp in every thread, after QEMU runs and before its guest does |",
  "| gateway | Landlock: Node's own files to read, nothing to write but `/dev/null`. The rest as above, no capability at all | the same, before the first connection |",
  "| ledger | Landlock: Node's own files and SQLite's binary to read, `ledgers` and what is below it to read, write, make, move and remove. The rest as a gateway | the same as an owner's, once its threads and SQLite run and before it says that it is ready |",
  "| proxy, aggregator, builtin | Landlock: Node's own files to read, nothing to write but `/dev/null`. The rest as a gateway | the same as an owner's, before it says that it is ready and before it is granted a channel to a neighbour |",
  "| egress | Landlock: Node's own files and the machine's list of certificates to read, nothing to write but `/dev/null`. The rest as a gateway, but in the machine's own network | the same as an owner's, once the certificates are read and before it is granted a channel to a client |",
  "| QEMU | Landlock within the owner's, a user id of its own where the service is root, no capability; seccomp against sockets and signals | its own sandbox (`-sandbox`) |",
  "| gatekeeper | nothing: it opens for the gateway, speaks no protocol of a client, and its four verbs name no path | |",
  "| service, cli, image | nothing: they are the user | |",
  "",
  "An owner, the ledger and the workers die with the service, a hypervisor with its owner, a gateway with its gatekeeper: the kernel sees to it",
  "(parent-death signal), also when a process is killed. The owner keeps the right `kill` for this reason too: the signal",
  "of a dying parent is checked like any other, and QEMU has another user id.",
  "",
  "## What a sealed process may do",
  "",
  "| | owner | gateway | ledger | proxy, aggregator, builtin | egress |",
  "|---|---|---|---|---|---|",
  "| open files | output files in its `jobs` folder, always emptied | none; the token and the log, which it can only append to, come as descriptors | databases and archives below `ledgers` | none | none |",
  "| sockets | those it was started with | the listener it was started with, and what it accepts there; connections to the service come as descriptors | those it was started with | those it was started with; channels to its neighbours come as descriptors, on one socket | the same, and TCP connections that it makes; it neither binds nor listens, sends no datagram, and so asks for no name |",
  "| start programs | no; QEMU runs already | no | no | no | no |",
  "| sends descriptors | a golden's, to its hypervisor alone | to the gatekeeper, which takes none | no | no | no |",
  "| largest file that it writes | one job's output, 10 MiB | its log, 21 MiB | 64 GiB, the largest quota | none | none |",
  "| signals | QEMU and itself | itself | itself | itself | itself |",
  "| threads, timers, compiled code | yes | yes | yes | yes | yes |",
  "",
  "## When it is refused",
  "",
  "A VM that fails with `confinement_refused` could not be confined; so could a gateway that does not start. The message in",
  "the VM's log (`capsem logs`), or the gateway's, says what is missing:",
  "",
  "| message | meaning and remedy |",
  "|---|---|",
  "| `this kernel has no Landlock, or it is switched off`, or the launcher's `landlock: ENOSYS` or `EOPNOTSUPP` | Linux before 5.13, or without `landlock` among its `lsm=`: add it to the kernel's command line |",
  "| `Landlock is not in force` | the process was started by hand, not by the service or the gatekeeper |",
  "| `the kernel refuses a seccomp filter` | a kernel without seccomp, or a container that denies it |",
  "| the launcher's `…: EACCES` while the service is root | an owner is root without its rights: Node, QEMU or Capsem lies in another user's private folder |",
  "| `it could open a foreign file` and the like | a probe that had to fail did not: treat it as a hole, and report it |",
  "| `there is no seccomp profile for …` | a machine other than x64 and arm64 |",
  "",
  "`confinement.allow_unconfined` in `settings.toml` starts VMs with whatever confinement there is, `--allow-unconfined` a gateway",
  "with none. Both are said by `capsem status` and `capsem doctor`, and in the logs.",
  "",
  "## What is not protected",
  "",
  "- Landlock does not judge a Unix socket that is connected by its path, and no network namespace covers it. The",
  "  filters keep owners, QEMU and the gateway from the service's own socket; where the service is root, QEMU's other",
  "  user id does too, and otherwise there is no second wall behind them.",
  "- Where no network namespace can be made, the filters alone keep the network away; the logs say `a second wall is",
  "  missing`. An owner before its seal has neither, and has met no byte of a guest.",
  "- QEMU's filter is a list of what is denied. A call that reaches another process and is not on it is Landlock's and",
  "  QEMU's own sandbox's to judge.",
  "- A gateway that was taken over can fill its log with lies until older lines are rotated away; it cannot change one",
  "  that is written. An owner's files are bounded in size by the kernel, in number by the service's count alone.",
  "- No filter looks behind a pointer. Metadata (whether a path exists, its size and owner) can be read with `statx`; the",
  "  owner's `openat` is bounded by Landlock alone in where it opens, by the filter in how.",
  "- A ledger that was taken over can rewrite every ledger: the signed heads and the checkpoints, which it cannot reach,",
  "  contradict it up to the last one of them.",
  "- Where egress dials is behind a pointer, and Landlock judges ports alone: one that was taken over can dial any address,",
  "  this machine's own among them. It holds what it was lent for the connections of the moment, and no list of secrets.",
  "- Memory that was a file's can be made executable by `mprotect`; the files that can be opened are few and its own.",
  "- A process that was taken over can use what it holds: an owner its VM and its channel to the service, a gateway every",
  "  connection and the token. The service judges each call again.",
  "- A pid that QEMU left may be another process later; where Landlock is of version 6 or newer, or the user ids differ,",
  "  the owner cannot signal that one either.",
  "- Before the seal, which is before any byte of a guest or a client, only the launcher's part is in force.",
  "- Memory and processor time are not limited by this.",
];

const ENDING: readonly string[] = [
  "",
  "Not fatal although it is denied: `io_uring_setup`, which libuv tries for each event loop and does without, and `socket`,",
  "which any script reaches by mistake.",
];
