import { NODE_FATAL, NODE_GROUPS, NODE_REFUSALS, NODE_RULES } from "./node-rules.ts";
import { NO_FAST_OPEN, PROBES, type Profile } from "./profile.ts";

/** What `capsem-gatekeeper` leaves open for its gateway. */
export const GATEWAY_DESCRIPTORS = { listener: 3, pair: 4 } as const;

const { listener, pair } = GATEWAY_DESCRIPTORS;
const SOL_SOCKET = 1;
const SO_KEEPALIVE = 9;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const TCP_KEEPIDLE = 4;
const TCP_KEEPINTVL = 5;
const TCP_KEEPCNT = 6;
const F_SETFL = 4;
const O_APPEND = 0x400;

const socketOption = (level: number, name: number) =>
  [
    { argument: 1, equals: level },
    { argument: 2, equals: name },
  ] as const;

/**
 * The gateway, before its first connection. It accepts on the listener that it was given and gets every other
 * descriptor from its gatekeeper. It opens no path and makes no socket at all, and the one that it could make a
 * caller of, its listener, stays a listener.
 */
export const GATEWAY_PROFILE: Profile = {
  name: "gateway",
  groups: [
    ...NODE_GROUPS,
    { why: "connections on the listener that it holds", calls: ["accept4", "accept"] },
    { why: "answers of the gatekeeper, with descriptors", calls: ["recvmsg"] },
  ],
  rules: [
    ...NODE_RULES,
    {
      why: "connections on the listener that it was given, and on no other socket",
      call: "listen",
      cases: [[{ argument: 0, equals: listener }]],
    },
    {
      why: "requests to the gatekeeper; Node itself writes to its connections by other calls",
      call: "sendmsg",
      cases: [
        [
          { argument: 0, equals: pair },
          { argument: 2, ...NO_FAST_OPEN },
        ],
      ],
    },
    {
      why: "the end of what it says on a connection; a listener that is shut down could call instead",
      call: "shutdown",
      cases: [[{ argument: 0, atLeast: pair + 1 }]],
    },
    {
      why: "F_GETFD, F_SETFD, F_GETFL: a descriptor's own flags; F_SETFL that leaves a log one to append to",
      call: "fcntl",
      cases: [
        ...[1, 2, 3].map((equals) => [{ argument: 1, equals }] as const),
        [
          { argument: 1, equals: F_SETFL },
          { argument: 2, mask: O_APPEND, equals: O_APPEND },
        ],
      ],
    },
    {
      why: "no delay and keep-alive of a connection",
      call: "setsockopt",
      cases: [
        socketOption(SOL_SOCKET, SO_KEEPALIVE),
        ...[TCP_NODELAY, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT].map((name) =>
          socketOption(IPPROTO_TCP, name),
        ),
      ],
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
