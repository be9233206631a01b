import type { ServiceStats } from "@capsem/api";
import type { Handler } from "../context.ts";
import { renderBytes, renderPairs, renderSpan, renderTable } from "../render.ts";

export const stats: Handler = async (context, args) => {
  const { client, output, json } = context;
  const word = args.words[0];
  if (word !== undefined) return await (await import("./vm-stats.ts")).vmStats(context, word);
  const found = await (await client()).operation("stats")({});
  await (json ? output.json(found) : output.print(renderStats(found)));
  return 0;
};

export function renderStats({ vms, pool, jobs, memory, requests, routes, ...rest }: ServiceStats): string {
  const pairs = renderPairs([
    ["started", `${rest.started_at} (${renderSpan(rest.uptime_secs)} ago)`],
    ["requests", `${requests.total}, ${requests.failed} failed, ${requests.in_flight} under way`],
    [
      "vms",
      `${vms.running} running, ${vms.total} in all; ${vms.created} created, ${vms.deleted} deleted, ${vms.failed} failed`,
    ],
    ["pool", `${pool.claimed} claimed, ${pool.missed} missed`],
    ["jobs", `${jobs.running} running, ${jobs.started} started`],
    [
      "memory",
      `service ${renderBytes(memory.service_bytes)}, owners ${renderBytes(memory.owners_bytes)}, hypervisors ${renderBytes(memory.hypervisors_bytes)}`,
    ],
  ]);
  if (routes.length === 0) return pairs;
  const rows = routes.map((row) => [
    row.route,
    String(row.calls),
    String(row.failed),
    row.p50_ms.toFixed(1),
    row.p99_ms.toFixed(1),
    row.max_ms.toFixed(1),
  ]);
  return `${pairs}\n${renderTable(["ROUTE", "CALLS", "FAILED", "P50 MS", "P99 MS", "MAX MS"], rows)}`;
}
