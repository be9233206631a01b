import { NODE_FATAL, NODE_GROUPS, NODE_REFUSALS, NODE_RULES } from "./node-rules.ts";
import { PROBES, type ProbeName, type Profile } from "./profile.ts";

const AF_INET = 2;
const AF_INET6 = 10;
const SOCK_STREAM = 1;
/** SOCK_TYPE_MASK: what is above it are flags, close-on-exec and non-blocking. */
const SOCKET_TYPE = 0xf;
const SOL_SOCKET = 1;
const SO_KEEPALIVE = 9;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const TCP_KEEPIDLE = 4;
const TCP_KEEPINTVL = 5;
const TCP_KEEPCNT = 6;

const option = (level: number, name: number) =>
  [
    { argument: 1, equals: level },
    { argument: 2, equals: name },
  ] as const;

/** What it is there for. */
const ITS_WORK: readonly ProbeName[] = ["make an internet socket", "connect a socket"];

/**
 * Egress: it dials, by TCP alone, so it has no way to ask for a name; and it neither binds nor listens. No filter sees
 * which address is dialled, because that lies behind a pointer: it is the service that says which ones, and this
 * process that keeps to them.
 */
export const EGRESS_PROFILE: Profile = {
  name: "egress",
  groups: [
    ...NODE_GROUPS,
    {
      why: "a connection to an address that was admitted, of sockets that the next rule lets be made",
      calls: ["connect"],
    },
    { why: "the end of what it says on a connection or a channel", calls: ["shutdown"] },
  ],
  rules: [
    ...NODE_RULES,
    {
      why: "TCP over IPv4 and IPv6: no datagrams, which names are asked for by, and no socket of this machine",
      call: "socket",
      cases: [AF_INET, AF_INET6].map((family) => [
        { argument: 0, equals: family },
        { argument: 1, mask: SOCKET_TYPE, equals: SOCK_STREAM },
        { argument: 2, equals: 0 },
      ]),
    },
    {
      why: "no delay and keep-alive of a connection",
      call: "setsockopt",
      cases: [
        option(SOL_SOCKET, SO_KEEPALIVE),
        ...[TCP_NODELAY, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT].map((name) => option(IPPROTO_TCP, name)),
      ],
    },
    {
      why: "channels to its clients, which the service sends on this descriptor; on no other one do any come",
      call: "recvmsg",
      cases: [[{ argument: 0, equals: "grants socket" }]],
    },
    {
      why: "F_GETFD, F_SETFD, F_GETFL, F_SETFL: a descriptor's own flags",
      call: "fcntl",
      cases: [1, 2, 3, 4].map((equals) => [{ argument: 1, equals }]),
    },
    {
      why: "itself, to end by a signal that it caught",
      call: "kill",
      cases: [[{ argument: 0, equals: "self" }]],
    },
  ],
  refusals: NODE_REFUSALS,
  fatal: NODE_FATAL,
  probes: PROBES.filter((probe) => !ITS_WORK.includes(probe)),
};
