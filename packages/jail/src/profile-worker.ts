import { NODE_FATAL, NODE_GROUPS, NODE_REFUSALS, NODE_RULES } from "./node-rules.ts";
import { PROBES, type Profile } from "./profile.ts";

/**
 * A process that carries tool calls and reaches the world by its neighbours alone: it has the channels that it was
 * started with, and those that the service grants it later. It opens no path at all, so what it needs of a file, its
 * own program for a thread among it, is read before.
 */
function workerProfile(name: string): Profile {
  return {
    name,
    groups: [...NODE_GROUPS, { why: "the end of what it says on a channel", calls: ["shutdown"] }],
    rules: [
      ...NODE_RULES,
      {
        why: "channels to its neighbours, which the service sends on this descriptor; on no other one do any come",
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
    probes: PROBES,
  };
}

/** It parses what a guest says. */
export const PROXY_PROFILE = workerProfile("proxy");
/** It parses what external servers answer. */
export const AGGREGATOR_PROFILE = workerProfile("aggregator");
/** It parses pages of the web. */
export const BUILTIN_PROFILE = workerProfile("builtin");
