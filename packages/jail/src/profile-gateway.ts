import { NODE_FATAL, NODE_GROUPS, NODE_REFUSALS, NODE_RULES } from "./node-rules.ts";
import { PROBES, type Profile } from "./profile.ts";

const SOL_SOCKET = 1;
const IPPROTO_TCP = 6;

/**
 * The gateway, before its first connection. It accepts on the listener that it was given and gets every other
 * descriptor from its gatekeeper. It opens no path and makes no socket at all.
 */
export const GATEWAY_PROFILE: Profile = {
  name: "gateway",
  groups: [
    ...NODE_GROUPS,
    { why: "connections on the listener that it holds", calls: ["accept4", "accept", "listen"] },
    { why: "requests to the gatekeeper, and descriptors from it", calls: ["sendmsg", "recvmsg"] },
  ],
  rules: [
    ...NODE_RULES,
    {
      why: "no delay and keep-alive of a connection",
      call: "setsockopt",
      cases: [[{ argument: 1, equals: SOL_SOCKET }], [{ argument: 1, equals: IPPROTO_TCP }]],
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
