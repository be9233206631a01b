import { join } from "node:path";
import type { Panic } from "@capsem/api";
import * as z from "zod";
import { TROUBLE_LIMITS } from "../limits.ts";
import { ReadBudget, readLogWindow } from "../log/log-window.ts";
import { panicOf } from "./panic.ts";

/** The gateway may write nothing but its log: what it says there as it dies is its panic. */
const panicLine = z.looseObject({
  time: z.iso.datetime({ offset: true }),
  message: z.literal("panic"),
  detail: z.string().optional(),
  pid: z.number().int().nonnegative().optional(),
});

/** The newest first. A line of another shape is passed over. */
export async function readGatewayPanics(
  logs: string,
  sinceMs: number | null,
  signal?: AbortSignal,
): Promise<Panic[]> {
  const request = {
    grep: '"message":"panic"',
    tail: TROUBLE_LIMITS.gatewayPanicsMax,
    maxBytes: TROUBLE_LIMITS.gatewayPanicBytesMax,
  };
  const { lines } = await readLogWindow(join(logs, "gateway.jsonl"), request, new ReadBudget(signal));
  const found = lines.flatMap((line) => {
    const parsed = panicLine.safeParse(jsonOf(line));
    if (!parsed.success) return [];
    const { time, pid = 0, detail = "panic" } = parsed.data;
    return [panicOf({ process: "gateway", pid, time: new Date(time), thrown: detail })];
  });
  return found.filter(({ time }) => sinceMs === null || Date.parse(time) >= sinceMs).reverse();
}

function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch {
    // Cut by a full disk: no panic that could be shown.
    return null;
  }
}
