import type { ActContext } from "../../act.ts";

/** Of a local user whose client has a name. */
export function contextOf(over: Partial<ActContext> = {}): ActContext {
  return {
    requester: { kind: "user", name: "uid 1000" },
    client: "tester/1",
    tokenId: null,
    trace: `00-${"ab".repeat(16)}-${"cd".repeat(8)}-01`,
    traceId: "ab".repeat(16),
    asks: "hold" as const,
    turn: "turn-1",
    timeLeftMs: null,
    signal: new AbortController().signal,
    ...over,
  };
}
