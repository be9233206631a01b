import type { ServiceStatus } from "@capsem/api";
import type { Handler } from "../context.ts";
import { renderPairs } from "../render.ts";

export const status: Handler = async ({ client, output, json }) => {
  const found = await (await client()).status();
  await (json ? output.json(found) : output.print(renderStatus(found)));
  return 0;
};

export function renderStatus(found: ServiceStatus): string {
  const { accelerator, pool, limits, vms } = found;
  return renderPairs([
    ["version", found.version],
    ["pid", String(found.pid)],
    ["started", found.started_at],
    ["home", found.home],
    ["accelerator", accelerator === null ? "not known yet" : `${accelerator.name} (${accelerator.reason})`],
    ["image", found.image ?? "none"],
    ["vms", `${vms.running} running, ${vms.total} in all`],
    ["pool", `${pool.warm} warm, ${pool.preparing} preparing, target ${pool.target}`],
    [
      "limits",
      `${limits.running_max} running, ${limits.retained_max} kept, ${limits.memory_gib_max} GiB and ${limits.cpus_max} CPUs a VM`,
    ],
  ]);
}
