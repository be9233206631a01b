import type { Group, Refusal, Rule } from "./profile.ts";
import type { Syscall } from "./syscall-table.ts";

/**
 * What Node itself needs whatever it does: found by running Node 20 under the filter until its timers, sockets on
 * inherited descriptors, pool threads, workers, JIT, WebAssembly and collector all worked, and by reading libuv.
 */

const ENOSYS = 38;

export const NODE_GROUPS: readonly Group[] = [
  {
    why: "bytes of descriptors that it holds; none is opened by these",
    calls: ["read", "write", "readv", "writev", "close", "lseek"],
  },
  {
    why: "what a descriptor that it holds is: Node asks before it wraps one in a stream",
    calls: ["fstat", "getsockopt", "getsockname", "getpeername"],
  },
  {
    why: "the event loop",
    calls: [
      ...(["epoll_pwait", "epoll_wait", "epoll_ctl", "epoll_create1"] as const),
      ...(["eventfd2", "pipe2", "poll", "ppoll"] as const),
    ],
  },
  {
    why: "memory of its own: heap, stacks, compiled code",
    calls: ["munmap", "mremap", "madvise", "brk", "membarrier", "mprotect", "pkey_mprotect"],
  },
  {
    why: "threads of its own and their signals",
    calls: [
      ...(["futex", "set_robust_list", "rseq", "gettid", "sched_yield", "sched_getaffinity"] as const),
      ...([
        "sched_getscheduler",
        "sched_getparam",
        "getcpu",
        "exit",
        "exit_group",
        "restart_syscall",
      ] as const),
      ...(["rt_sigprocmask", "rt_sigreturn", "rt_sigaction", "sigaltstack"] as const),
    ],
  },
  {
    why: "time and chance",
    calls: ["clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "getrandom"],
  },
  {
    why: "facts about itself and the machine; a worker asks for its folder",
    calls: [
      ...(["getpid", "getppid", "getuid", "geteuid", "getgid", "getegid"] as const),
      ...(["getcwd", "uname", "sysinfo", "getrusage"] as const),
    ],
  },
];

const EXECUTABLE = 0x4;
const ANONYMOUS = 0x20;
const EMPTY_PATH = 0x1000;
const THREAD = 0x10000;
/** CLONE_NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWNS: no thread enters a new namespace. */
const NAMESPACES = 0x7e020000;
const PR_SET_NAME = 15;
const PR_SET_VMA = 0x53564d41;
const FILTER_OPERATION = 1;

export const THREADS_ONLY: Rule = {
  why: "threads, never processes",
  call: "clone",
  cases: [[{ argument: 0, mask: THREAD | NAMESPACES, equals: THREAD }]],
};

export const NODE_RULES: readonly Rule[] = [
  {
    why: "mapped memory is executable only when no file is behind it: the compiler's, not a library's",
    call: "mmap",
    cases: [
      [{ argument: 2, mask: EXECUTABLE, equals: 0 }],
      [{ argument: 3, mask: ANONYMOUS, equals: ANONYMOUS }],
    ],
  },
  THREADS_ONLY,
  {
    why: "what a held descriptor is, in the C library's newer words; other paths stay hidden, more or less",
    call: "newfstatat",
    cases: [[{ argument: 3, mask: EMPTY_PATH, equals: EMPTY_PATH }]],
  },
  {
    why: "the same",
    call: "statx",
    cases: [[{ argument: 2, mask: EMPTY_PATH, equals: EMPTY_PATH }]],
  },
  {
    why: "abort, and a debugger's thread in this process: signals to our own threads",
    call: "tgkill",
    cases: [[{ argument: 0, equals: "self" }]],
  },
  {
    why: "FIONBIO, FIOCLEX, and TCGETS, by which it finds out that a descriptor is no terminal",
    call: "ioctl",
    cases: [
      [{ argument: 1, equals: 0x5421 }],
      [{ argument: 1, equals: 0x5451 }],
      [{ argument: 1, equals: 0x5401 }],
    ],
  },
  {
    why: "names of threads and of mappings",
    call: "prctl",
    cases: [[{ argument: 0, equals: PR_SET_NAME }], [{ argument: 0, equals: PR_SET_VMA }]],
  },
  {
    why: "what its own limits are, which a thread's stack depends on; new ones are never set",
    call: "prlimit64",
    cases: [
      [
        { argument: 0, equals: 0 },
        { argument: 2, isNull: true },
      ],
    ],
  },
  {
    why: "one more filter: it can only take away; the one for what is fatal comes after the probes",
    call: "seccomp",
    cases: [[{ argument: 0, equals: FILTER_OPERATION }]],
  },
];

export const NODE_REFUSALS: readonly Refusal[] = [
  {
    why: "its flags lie behind a pointer: the C library goes on with clone, whose flags can be judged",
    call: "clone3",
    errno: ENOSYS,
  },
];

/**
 * Nothing of ours, of Node or of its libraries makes these calls, so whoever does has taken the process over. Not
 * here: `io_uring_setup`, which libuv tries in each new loop and does without; `socket`, which any script reaches.
 */
export const NODE_FATAL: readonly Syscall[] = [
  ...(["execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise"] as const),
  ...(["pidfd_getfd", "bpf", "unshare", "setns", "mount", "umount2", "move_mount", "open_tree"] as const),
  ...(["fsopen", "fsconfig", "fsmount", "pivot_root", "chroot", "init_module", "finit_module"] as const),
  ...(["delete_module", "kexec_load", "kexec_file_load", "userfaultfd", "perf_event_open"] as const),
  ...([
    "add_key",
    "request_key",
    "keyctl",
    "open_by_handle_at",
    "io_uring_enter",
    "io_uring_register",
  ] as const),
  "seccomp",
];
