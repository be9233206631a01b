import type { ServiceStatus } from "@capsem/api";
import type { Handler } from "../context.ts";
import { findGateway, type GatewayState } from "../gateway-state.ts";
import { renderPairs } from "../render.ts";

export const status: Handler = async (context) => {
  const { client, powers, output, json } = context;
  const found = await (await client()).status();
  const gateway = await findGateway(powers);
  if (json) await output.json({ ...found, gateway });
  else await output.print(renderStatus(found, gatewayText(gateway)));
  return 0;
};

function gatewayText(gateway: GatewayState | null): string {
  if (gateway === null) return "not running; capsem gateway start";
  return gateway.answers
    ? `${gateway.url}, pid ${gateway.pid}${gateway.isConfined ? "" : ", not confined"}`
    : `pid ${gateway.pid} does not answer`;
}

export function renderStatus(found: ServiceStatus, gateway?: string): string {
  const { accelerator, pool, limits, vms, confinement } = found;
  return renderPairs([
    ["version", found.version],
    ["pid", String(found.pid)],
    ["started", found.started_at],
    ["home", found.home],
    ["accelerator", accelerator === null ? "not known yet" : `${accelerator.name} (${accelerator.reason})`],
    ["confinement", `${confinement.is_enforced ? "on" : "off"} (${confinement.reason})`],
    ["image", found.image ?? "none"],
    ["vms", `${vms.running} running, ${vms.total} in all`],
    ["pool", `${pool.warm} warm, ${pool.preparing} preparing, target ${pool.target}`],
    [
      "limits",
      `${limits.running_max} running, ${limits.retained_max} kept, ${limits.memory_gib_max} GiB and ${limits.cpus_max} CPUs a VM`,
    ],
    ...(gateway === undefined ? [] : [["gateway", gateway] as const]),
  ]);
}
