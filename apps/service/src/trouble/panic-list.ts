import type { HomeLayout } from "../home/layout.ts";
import { LOG_LIMITS } from "../limits.ts";
import { readGatewayPanics } from "./gateway-panics.ts";
import { findLostGateways } from "./lost-gateways.ts";
import { type FoundPanics, type PanicRequest, readPanics } from "./panic-files.ts";

/** Panics of all our processes, the newest first. */
export async function listPanics(
  layout: Pick<HomeLayout, "panics" | "logs" | "run">,
  { sinceMs, limit, signal }: PanicRequest,
): Promise<FoundPanics> {
  const [files, gateway, lostGateways] = await Promise.all([
    readPanics(layout.panics, { sinceMs, limit: LOG_LIMITS.panicsKept }),
    readGatewayPanics(layout.logs, sinceMs, signal),
    findLostGateways(layout, signal),
  ]);
  const lost = lostGateways.filter(({ time }) => sinceMs === null || Date.parse(time) >= sinceMs);
  const all = [...files.panics, ...gateway, ...lost].sort(
    (left, right) => Date.parse(right.time) - Date.parse(left.time),
  );
  return { panics: all.slice(0, limit), truncated: files.truncated || all.length > limit };
}
