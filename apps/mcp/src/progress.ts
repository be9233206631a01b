import { PROGRESS_INTERVAL_MS } from "./limits.ts";
import type { ServerContext } from "./mcp-sdk.ts";

export type Every = (intervalMs: number, tick: () => void) => () => void;

/** Tells a client that asked for it that a call is still under way; returns how to stop. Progress is seconds. */
export function startProgress(tool: string, { mcpReq }: ServerContext, every: Every): () => void {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return () => undefined;
  let progress = 0;
  return every(PROGRESS_INTERVAL_MS, () => {
    progress += PROGRESS_INTERVAL_MS / 1000;
    const message = `${tool}: ${progress} s`;
    const params = { progressToken, progress, message };
    // A connection that is lost ends the call by itself.
    mcpReq.notify({ method: "notifications/progress", params }).catch(() => undefined);
  });
}
