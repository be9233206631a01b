import { NODE_FATAL, NODE_REFUSALS, THREADS_ONLY } from "./node-rules.ts";
import { type Denials, NO_FAST_OPEN } from "./profile.ts";

const F_SETOWN = 8;
const F_SETSIG = 10;
const F_SETOWN_EX = 15;
const FIOSETOWN = 0x8901;
const SIOCSPGRP = 0x8902;
const TIOCSTI = 0x5412;
const PR_SET_PDEATHSIG = 1;

/** Calls of an intruder that the hypervisor's own start needs: its program is executed, and it adds a sandbox. */
const START: readonly string[] = ["execve", "execveat", "seccomp"];

/**
 * The hypervisor, from its first instruction. Its own sandbox (`-sandbox`) and Landlock leave open what this closes:
 * neither judges a socket that is connected by a path, and where no network namespace could be made, none is. It
 * lives on the sockets that it inherits and on descriptors that come over them.
 */
export const HYPERVISOR_DENIALS: Denials = {
  name: "hypervisor",
  groups: [
    {
      why: "sockets beside those it was given: the service's, another VM's, an agent's, the network's",
      calls: ["socket", "socketpair", "connect", "bind", "listen", "accept", "accept4", "sendmmsg"],
    },
    {
      why: "queues and memory that other processes share by a name",
      calls: ["mq_open", "msgget", "semget", "shmget"],
    },
    {
      why: "signals to other processes",
      calls: ["kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal"],
    },
    {
      why: "other processes' memory and descriptors, rings, keys, namespaces, mounts, the kernel itself",
      calls: ["io_uring_setup", ...NODE_FATAL.filter((call) => !START.includes(call))],
    },
  ],
  onlyWhen: [
    THREADS_ONLY,
    {
      why: "abort, and waking a processor's thread: signals to its own threads",
      call: "tgkill",
      cases: [[{ argument: 0, equals: "self" }]],
    },
    {
      why: "to a peer that is connected already: no address, no connection on the way",
      call: "sendto",
      cases: [
        [
          { argument: 3, ...NO_FAST_OPEN },
          { argument: 5, equals: 0 },
        ],
      ],
    },
    {
      why: "the same; its address lies behind a pointer, which a connected socket does not look at",
      call: "sendmsg",
      cases: [[{ argument: 2, ...NO_FAST_OPEN }]],
    },
  ],
  neverWhen: [
    {
      why: "who gets a descriptor's signals, and which",
      call: "fcntl",
      cases: [F_SETOWN, F_SETSIG, F_SETOWN_EX].map((equals) => [{ argument: 1, equals }]),
    },
    {
      why: "the same in older words, and keys into a terminal",
      call: "ioctl",
      cases: [FIOSETOWN, SIOCSPGRP, TIOCSTI].map((equals) => [{ argument: 1, equals }]),
    },
    {
      why: "it dies with its owner, and does not take that back",
      call: "prctl",
      cases: [[{ argument: 0, equals: PR_SET_PDEATHSIG }]],
    },
  ],
  refusals: NODE_REFUSALS,
};
