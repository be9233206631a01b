import { expect, test } from "vitest";
import { ANSWER, answer, assemble, ifEqual, load } from "./bpf.ts";
import { compileAllowed, compileDenied, compileFatal } from "./compile.ts";
import type { Profile } from "./profile.ts";
import { EGRESS_PROFILE } from "./profile-egress.ts";
import { GATEWAY_PROFILE } from "./profile-gateway.ts";
import { HYPERVISOR_DENIALS } from "./profile-hypervisor.ts";
import { LEDGER_PROFILE } from "./profile-ledger.ts";
import { OWNER_PROFILE } from "./profile-owner.ts";
import { AGGREGATOR_PROFILE, BUILTIN_PROFILE, PROXY_PROFILE } from "./profile-worker.ts";
import { ARCHES, type Arch, numberOf, SYSCALLS, type Syscall } from "./syscall-table.ts";
import { interpret } from "./testing/interpreter.ts";

const SELF = 1234;
const HYPERVISOR = 5678;
const CONTROL = 21;
const GRANTS = 4;
const SUBJECTS = {
  selfPid: SELF,
  hypervisorPid: HYPERVISOR,
  controlSocket: CONTROL,
  grantsSocket: GRANTS,
};
const EPERM = ANSWER.errno | 1;
const ENOSYS = ANSWER.errno | 38;
const WORKERS = [PROXY_PROFILE, AGGREGATOR_PROFILE, BUILTIN_PROFILE];
const PROFILES = [OWNER_PROFILE, GATEWAY_PROFILE, LEDGER_PROFILE, ...WORKERS, EGRESS_PROFILE];
const ARCH_NAMES = Object.keys(ARCHES) as Arch[];

type Args = readonly (number | bigint)[];

function judge(profile: Profile, call: Syscall, args: Args = [], arch: Arch = "x64"): string {
  const program = compileAllowed(profile, arch, SUBJECTS);
  const number = numberOf(call, arch);
  if (number === null) return "no such call";
  return wordOf(interpret(program, { number, arch: ARCHES[arch].audit, arguments: args }));
}

function wordOf(value: number): string {
  const words: Record<number, string> = { [ANSWER.allow]: "allow", [ANSWER.kill]: "kill", [EPERM]: "EPERM" };
  return value === ENOSYS ? "ENOSYS" : (words[value] ?? value.toString(16));
}

test("an instruction is eight little-endian bytes", () => {
  const bytes = assemble([load(4), ifEqual(0xc000003e, 1, 0), answer(ANSWER.allow)]);
  expect(Buffer.from(bytes).toString("hex")).toBe(
    "2000000004000000" + "150001003e0000c0" + "060000000000ff7f",
  );
});

test("a jump that does not reach is a bug, never another jump", () => {
  expect(() => ifEqual(1, 256, 0)).toThrow("255");
});

test.each(PROFILES)(
  "$name: what is in a group is allowed with any arguments, what is nowhere is EPERM",
  (profile) => {
    const known = new Set<string>([
      ...profile.groups.flatMap(({ calls }) => calls),
      ...profile.rules.map(({ call }) => call),
      ...profile.refusals.map(({ call }) => call),
    ]);
    for (const arch of ARCH_NAMES) {
      for (const call of profile.groups.flatMap(({ calls }) => calls)) {
        for (const args of [[], Array(6).fill(0xffff_ffff_ffff_ffffn)]) {
          expect([call, judge(profile, call, args, arch)]).toEqual([
            call,
            numberOf(call, arch) === null ? "no such call" : "allow",
          ]);
        }
      }
      for (const call of (Object.keys(SYSCALLS) as Syscall[]).filter((name) => !known.has(name))) {
        expect([call, judge(profile, call, [], arch)]).toEqual([
          call,
          numberOf(call, arch) === null ? "no such call" : "EPERM",
        ]);
      }
    }
  },
);

test.each(PROFILES)("$name: each call of the kernel that no line names is EPERM", (profile) => {
  for (const arch of ARCH_NAMES) {
    const named = new Set((Object.keys(SYSCALLS) as Syscall[]).map((call) => numberOf(call, arch)));
    const program = compileAllowed(profile, arch, SUBJECTS);
    for (let number = 0; number < 600; number += 1) {
      if (named.has(number)) continue;
      const verdict = wordOf(interpret(program, { number, arch: ARCHES[arch].audit }));
      expect([arch, number, verdict]).toEqual([arch, number, "EPERM"]);
    }
  }
});

test.each(PROFILES)("$name: a call of another machine ends the process", (profile) => {
  const programs = [compileAllowed(profile, "x64", { selfPid: SELF }), compileFatal(profile, "x64")];
  const I386 = 0x40000003;
  for (const program of programs) {
    expect(wordOf(interpret(program, { number: 0, arch: I386 }))).toBe("kill");
    expect(wordOf(interpret(program, { number: 0, arch: ARCHES.arm64.audit }))).toBe("kill");
    // x32 has numbers of its own under the same machine.
    expect(wordOf(interpret(program, { number: 0x40000000, arch: ARCHES.x64.audit }))).toBe("kill");
    expect(wordOf(interpret(program, { number: 0xffffffff, arch: ARCHES.x64.audit }))).toBe("kill");
  }
});

test.each(PROFILES)("$name: what is fatal ends the process and is allowed by no other line", (profile) => {
  for (const arch of ARCH_NAMES) {
    const program = compileFatal(profile, arch);
    for (const call of Object.keys(SYSCALLS) as Syscall[]) {
      const number = numberOf(call, arch);
      if (number === null) continue;
      const isFatal = profile.fatal.includes(call);
      const verdict = wordOf(interpret(program, { number, arch: ARCHES[arch].audit }));
      expect([call, verdict]).toEqual([call, isFatal ? "kill" : "allow"]);
      if (isFatal && call !== "seccomp")
        expect([call, judge(profile, call, [], arch)]).toEqual([call, "EPERM"]);
    }
  }
});

const CLONE_THREAD = 0x10000;
const SIGCHLD = 17;
/** What glibc's pthread_create asks for. */
const PTHREAD = 0x3d0f00;

const VERDICTS: readonly (readonly [Syscall, Args, owner: string, gateway: string])[] = [
  ["clone", [PTHREAD], "allow", "allow"],
  ["clone", [SIGCHLD], "EPERM", "EPERM"],
  ["clone", [0x4000 | 0x100 | SIGCHLD], "EPERM", "EPERM"], // vfork
  ["clone", [CLONE_THREAD | 0x10000000], "EPERM", "EPERM"], // a new user namespace
  ["clone", [CLONE_THREAD | 0x40000000], "EPERM", "EPERM"], // a new network namespace
  ["clone3", [], "ENOSYS", "ENOSYS"],
  ["mmap", [0, 4096, 3, 2], "allow", "allow"], // read, write, of a file
  ["mmap", [0, 4096, 5, 2], "EPERM", "EPERM"], // read, execute, of a file
  ["mmap", [0, 4096, 7, 0x22], "allow", "allow"], // compiled code
  ["kill", [SELF, 9], "allow", "allow"],
  ["kill", [HYPERVISOR, 9], "allow", "EPERM"],
  ["kill", [1, 9], "EPERM", "EPERM"],
  ["kill", [-HYPERVISOR, 9], "EPERM", "EPERM"],
  ["kill", [-1, 9], "EPERM", "EPERM"],
  ["tgkill", [SELF, 1, 6], "allow", "allow"],
  ["tgkill", [HYPERVISOR, HYPERVISOR, 9], "EPERM", "EPERM"],
  ["tkill", [SELF, 9], "EPERM", "EPERM"],
  ["openat", [-100, 0, 0x80242, 0o600], "allow", "EPERM"], // w+
  ["openat", [-100, 0, 0x80000], "EPERM", "EPERM"], // r
  ["openat", [-100, 0, 0x80002], "EPERM", "EPERM"], // r+
  ["openat", [-100, 0, 0x80442], "EPERM", "EPERM"], // a+
  ["openat", [-100, 0, 0x200000], "EPERM", "EPERM"], // O_PATH
  ["openat", [-100, 0, 0x80242 | 0x410000], "EPERM", "EPERM"], // O_TMPFILE
  ["newfstatat", [5, 0, 0, 0x1000], "allow", "allow"],
  ["newfstatat", [-100, 0, 0, 0], "EPERM", "EPERM"],
  ["statx", [-100, 0, 0, 0], "EPERM", "EPERM"],
  ["ioctl", [1, 0x5421], "allow", "allow"],
  ["ioctl", [1, 0x5412], "EPERM", "EPERM"], // TIOCSTI: keys into a terminal
  ["ioctl", [1, 0xffff_ffff_0000_5421n], "allow", "allow"], // The kernel reads 32 bits.
  ["fcntl", [1, 3], "allow", "allow"],
  ["fcntl", [1, 4, 0x401], "allow", "allow"], // F_SETFL, O_APPEND kept
  ["fcntl", [1, 4, 0x800], "allow", "EPERM"], // F_SETFL, O_APPEND cleared
  ["shutdown", [3, 0], "allow", "EPERM"],
  ["shutdown", [4, 1], "allow", "EPERM"],
  ["shutdown", [5, 1], "allow", "allow"],
  ["shutdown", [0xffff_ffff_0000_0003n, 0], "allow", "EPERM"],
  ["sendmsg", [4, 0, 0x4040], "EPERM", "allow"],
  ["sendmsg", [3, 0, 0], "EPERM", "EPERM"],
  ["sendmsg", [9, 0, 0], "EPERM", "EPERM"],
  ["sendmsg", [4, 0, 0x2000_4040], "EPERM", "EPERM"], // MSG_FASTOPEN
  ["sendmsg", [CONTROL, 0, 0x4040], "allow", "EPERM"],
  ["sendmsg", [CONTROL, 0, 0x2000_0000], "EPERM", "EPERM"],
  ["sendto", [4, 0, 0, 0, 0, 0], "EPERM", "EPERM"],
  ["fcntl", [1, 0], "EPERM", "EPERM"], // F_DUPFD
  ["fcntl", [1, 8], "EPERM", "EPERM"], // F_SETOWN: signals to others
  ["prctl", [15], "allow", "allow"],
  ["prctl", [1], "EPERM", "EPERM"], // PR_SET_PDEATHSIG, which would be taken back
  ["prctl", [4], "EPERM", "EPERM"], // PR_SET_DUMPABLE
  ["prlimit64", [0, 7, 0], "allow", "allow"],
  ["prlimit64", [0, 1, 0x7fff_0000_1000n], "EPERM", "EPERM"],
  ["prlimit64", [0, 1, 0x7fff_0000_0000n], "EPERM", "EPERM"], // A pointer whose lower half is zero.
  ["prlimit64", [1], "EPERM", "EPERM"],
  ["seccomp", [1], "allow", "allow"],
  ["seccomp", [3], "EPERM", "EPERM"],
  ["setsockopt", [3, 6, 1], "EPERM", "allow"],
  ["setsockopt", [3, 1, 9], "EPERM", "allow"], // SO_KEEPALIVE
  ["setsockopt", [3, 1, 26], "EPERM", "EPERM"], // SO_ATTACH_FILTER
  ["setsockopt", [3, 6, 30], "EPERM", "EPERM"], // TCP_FASTOPEN_CONNECT
  ["listen", [3, 511], "EPERM", "allow"],
  ["listen", [9, 511], "EPERM", "EPERM"],
  ["setsockopt", [3, 0, 1], "EPERM", "EPERM"],
  ["accept4", [3], "EPERM", "allow"],
  ["recvmsg", [3], "EPERM", "allow"],
  ["wait4", [-1], "allow", "EPERM"],
];

for (const [call, args, owner, gateway] of VERDICTS) {
  const shown = args.map((value) => `0x${BigInt.asUintN(64, BigInt(value)).toString(16)}`).join(", ");
  test(`${call}(${shown}): ${owner} for the owner, ${gateway} for the gateway`, () => {
    for (const arch of ARCH_NAMES) {
      expect([arch, judge(OWNER_PROFILE, call, args, arch)]).toEqual([arch, owner]);
      expect([arch, judge(GATEWAY_PROFILE, call, args, arch)]).toEqual([arch, gateway]);
    }
  });
}

const WORKER_VERDICTS: readonly (readonly [Syscall, Args, string])[] = [
  ["recvmsg", [GRANTS, 0, 0x40000040], "allow"],
  ["recvmsg", [3], "EPERM"],
  ["recvmsg", [GRANTS + 1], "EPERM"],
  ["sendmsg", [GRANTS, 0, 0], "EPERM"],
  ["openat", [-100, 0, 0x80000], "EPERM"],
  ["openat", [-100, 0, 0x80242], "EPERM"],
  ["pread64", [5], "EPERM"],
  ["fsync", [5], "EPERM"],
  ["getdents64", [5], "EPERM"],
  ["newfstatat", [-100, 0, 0, 0], "EPERM"],
  ["fcntl", [1, 4, 0x800], "allow"],
  ["fcntl", [1, 6], "EPERM"], // F_SETLK
  ["fcntl", [1, 0], "EPERM"], // F_DUPFD
  ["fcntl", [1, 8], "EPERM"], // F_SETOWN
  ["socket", [1, 1, 0], "EPERM"],
  ["connect", [5], "EPERM"],
  ["setsockopt", [5, 6, 1], "EPERM"],
  ["accept4", [5], "EPERM"],
  ["clone", [PTHREAD], "allow"],
  ["clone", [SIGCHLD], "EPERM"],
  ["kill", [SELF, 15], "allow"],
  ["kill", [1, 9], "EPERM"],
];

for (const [call, args, verdict] of WORKER_VERDICTS) {
  const shown = args.map((value) => `0x${BigInt.asUintN(64, BigInt(value)).toString(16)}`).join(", ");
  test.each(WORKERS)(`${call}(${shown}): ${verdict} for the $name`, (profile) => {
    for (const arch of ARCH_NAMES) expect([arch, judge(profile, call, args, arch)]).toEqual([arch, verdict]);
  });
}

const EGRESS_VERDICTS: readonly (readonly [Syscall, Args, string])[] = [
  ["socket", [2, 0x80801, 0], "allow"],
  ["socket", [10, 0x80801, 0], "allow"],
  ["socket", [2, 2, 0], "EPERM"], // SOCK_DGRAM
  ["socket", [10, 0x80802, 17], "EPERM"],
  ["socket", [2, 3, 255], "EPERM"], // SOCK_RAW
  ["socket", [2, 1, 6], "EPERM"], // what libuv never says
  ["socket", [2, 1, 262], "EPERM"], // IPPROTO_MPTCP
  ["socket", [2, 5, 132], "EPERM"], // SCTP
  ["socket", [1, 0x80801, 0], "EPERM"], // AF_UNIX
  ["socket", [16, 3, 0], "EPERM"], // AF_NETLINK
  ["socket", [40, 1, 0], "EPERM"], // AF_VSOCK
  ["connect", [7, 0, 16], "allow"],
  ["bind", [7], "EPERM"],
  ["listen", [7], "EPERM"],
  ["accept4", [7], "EPERM"],
  ["accept", [7], "EPERM"],
  ["sendmsg", [7], "EPERM"],
  ["sendto", [7, 0, 0, 0x2000_0000], "EPERM"],
  ["sendmmsg", [7], "EPERM"],
  ["recvmsg", [GRANTS], "allow"],
  ["recvmsg", [7], "EPERM"],
  ["recvfrom", [7], "EPERM"],
  ["setsockopt", [7, 6, 1], "allow"],
  ["setsockopt", [7, 1, 9], "allow"],
  ["setsockopt", [7, 1, 25], "EPERM"], // SO_BINDTODEVICE
  ["setsockopt", [7, 0, 19], "EPERM"], // IP_TRANSPARENT
  ["setsockopt", [7, 6, 30], "EPERM"], // TCP_FASTOPEN_CONNECT
  ["openat", [-100, 0, 0x80000], "EPERM"],
  ["clone", [PTHREAD], "allow"],
  ["clone", [SIGCHLD], "EPERM"],
  ["kill", [SELF, 15], "allow"],
  ["kill", [1, 9], "EPERM"],
];

for (const [call, args, verdict] of EGRESS_VERDICTS) {
  test(`${call}(${args.map((value) => `0x${BigInt.asUintN(64, BigInt(value)).toString(16)}`).join(", ")}): ${verdict} for egress`, () => {
    for (const arch of ARCH_NAMES) {
      const got = judge(EGRESS_PROFILE, call, args, arch);
      expect([arch, got]).toEqual([arch, numberOf(call, arch) === null ? "no such call" : verdict]);
    }
  });
}

test("a worker without a grants socket receives on no descriptor, not even on 0", () => {
  const program = compileAllowed(PROXY_PROFILE, "x64", { selfPid: SELF });
  for (const fd of [0, GRANTS]) {
    const call = { number: SYSCALLS.recvmsg[0], arch: ARCHES.x64.audit, arguments: [fd] };
    expect(wordOf(interpret(program, call))).toBe("EPERM");
  }
});

test("the three workers differ by their name alone", () => {
  const named = WORKERS.map((profile) => ({ ...profile, name: "" }));
  expect(named).toEqual(WORKERS.map(() => ({ ...PROXY_PROFILE, name: "" })));
});

function judgeHypervisor(call: Syscall, args: Args, arch: Arch): string {
  const program = compileDenied(HYPERVISOR_DENIALS, arch, { selfPid: SELF });
  const number = numberOf(call, arch);
  if (number === null) return "no such call";
  return wordOf(interpret(program, { number, arch: ARCHES[arch].audit, arguments: args }));
}

const HYPERVISOR_VERDICTS: readonly (readonly [Syscall, Args, string])[] = [
  ["execve", [], "allow"], // Its own start; its sandbox denies it then.
  ["seccomp", [1], "allow"],
  ["openat", [-100, 0, 0x80000], "allow"], // Landlock's to judge.
  ["socket", [1, 1, 0], "EPERM"],
  ["socketpair", [1, 1, 0], "EPERM"],
  ["connect", [5], "EPERM"],
  ["accept4", [5], "EPERM"],
  ["io_uring_setup", [], "EPERM"],
  ["process_vm_writev", [], "EPERM"],
  ["recvmsg", [5], "allow"],
  ["sendmsg", [5, 0, 0x4000], "allow"],
  ["sendmsg", [5, 0, 0x2000_0000], "EPERM"],
  ["sendto", [5, 0, 1, 0x4000, 0, 0], "allow"],
  ["sendto", [5, 0, 1, 0, 0x7fff_0000_0000n, 16], "EPERM"],
  ["sendto", [5, 0, 1, 0x2000_0000, 0, 0], "EPERM"],
  ["kill", [SELF, 0], "EPERM"],
  ["tgkill", [SELF, SELF + 1, 10], "allow"],
  ["tgkill", [SELF + 1, SELF + 1, 10], "EPERM"],
  ["clone", [PTHREAD], "allow"],
  ["clone", [SIGCHLD], "EPERM"],
  ["clone3", [], "ENOSYS"],
  ["fcntl", [5, 4, 0x800], "allow"],
  ["fcntl", [5, 37], "allow"], // F_OFD_SETLK: a disk's lock
  ["fcntl", [5, 8, 1], "EPERM"],
  ["ioctl", [5, 0xae80], "allow"], // KVM_RUN
  ["ioctl", [5, 0x8901], "EPERM"],
  ["prctl", [15], "allow"],
  ["prctl", [1, 0], "EPERM"],
];

for (const [call, args, verdict] of HYPERVISOR_VERDICTS) {
  const shown = args.map((value) => `0x${BigInt.asUintN(64, BigInt(value)).toString(16)}`).join(", ");
  test(`${call}(${shown}): ${verdict} for the hypervisor`, () => {
    for (const arch of ARCH_NAMES) expect([arch, judgeHypervisor(call, args, arch)]).toEqual([arch, verdict]);
  });
}

test("the hypervisor's list names no call twice, and a call of another machine ends it", () => {
  const { groups, onlyWhen, neverWhen, refusals } = HYPERVISOR_DENIALS;
  const calls = [
    ...groups.flatMap((group) => group.calls),
    ...[...onlyWhen, ...neverWhen, ...refusals].map(({ call }) => call),
  ];
  expect(calls.filter((call, index) => calls.indexOf(call) !== index)).toEqual([]);
  const program = compileDenied(HYPERVISOR_DENIALS, "x64", { selfPid: SELF });
  expect(wordOf(interpret(program, { number: 359, arch: 0x40000003 }))).toBe("kill"); // 32-bit socket
  expect(wordOf(interpret(program, { number: 0x40000029, arch: ARCHES.x64.audit }))).toBe("kill"); // x32 socket
});

test("without a hypervisor its line allows nothing, not even pid 0", () => {
  const program = compileAllowed(OWNER_PROFILE, "x64", { selfPid: SELF });
  const verdict = (pid: number) =>
    wordOf(interpret(program, { number: SYSCALLS.kill[0], arch: ARCHES.x64.audit, arguments: [pid, 9] }));
  expect([verdict(SELF), verdict(0), verdict(HYPERVISOR)]).toEqual(["allow", "EPERM", "EPERM"]);
});

test.each(PROFILES)(
  "$name: no call stands on two lines, and a masked value lies within its mask",
  (profile) => {
    const calls = [
      ...profile.groups.flatMap(({ calls }) => calls),
      ...profile.rules.map(({ call }) => call),
      ...profile.refusals.map(({ call }) => call),
    ];
    expect(calls.filter((call, index) => calls.indexOf(call) !== index)).toEqual([]);
    for (const { cases } of profile.rules) {
      for (const each of cases.flat()) {
        if (!("equals" in each)) continue;
        const { equals, mask } = each;
        if (typeof equals === "number" && mask !== undefined) expect(equals & ~mask).toBe(0);
      }
    }
  },
);
