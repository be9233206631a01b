import type { ServiceStatus } from "@capsem/api";
import type { Handler } from "../context.ts";
import { findGateway, type GatewayState } from "../gateway-state.ts";
import { counted, renderPairs } from "../render.ts";

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

function policyText({ preset, rules, has_corp: hasCorp, faults }: ServiceStatus["policy"]): string {
  const corp = hasCorp ? ", the corporation's among them" : "";
  const bad = faults === 0 ? "" : `; ${counted(faults, "fault")}: capsem settings list`;
  return `${preset}, ${counted(rules, "rule")}${corp}${bad}`;
}

function asksText({ pending, watchers }: ServiceStatus["asks"]): string {
  const watched = watchers === 0 ? "nobody watches" : counted(watchers, "watcher");
  const waits = pending === 0 ? "none waits" : counted(pending, "call waits", "calls wait");
  return `${waits}, ${watched}${pending === 0 ? "" : ": capsem asks list"}`;
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
    ["policy", policyText(found.policy)],
    [
      "ledger",
      found.ledger.reason === null ? found.ledger.state : `${found.ledger.state} (${found.ledger.reason})`,
    ],
    ["asks", asksText(found.asks)],
    ["vms", `${vms.running} running, ${vms.total} in all`],
    ["pool", `${pool.warm} warm, ${pool.preparing} preparing, target ${pool.target}`],
    [
      "limits",
      `${limits.running_max} running, ${limits.retained_max} kept, ${limits.memory_gib_max} GiB and ${limits.cpus_max} CPUs a VM`,
    ],
    ...(gateway === undefined ? [] : [["gateway", gateway] as const]),
  ]);
}
