import { setMaxListeners } from "node:events";
import type { ActContext } from "../act.ts";

/** Somebody who asks: the user on the socket, unless the test says else. */
export function actContextOf(over: Partial<ActContext> = {}): ActContext {
  const { signal } = new AbortController();
  // Many acts of a test share it; a request has one of its own.
  setMaxListeners(0, signal);
  return {
    requester: { kind: "user", name: "uid 1000" },
    client: null,
    tokenId: null,
    trace: `00-${"1".repeat(32)}-${"2".repeat(16)}-01`,
    traceId: "1".repeat(32),
    asks: "hold" as const,
    turn: null,
    timeLeftMs: null,
    signal,
    ...over,
  };
}
