/** An owner: the one process that owns one VM's hypervisor, control and bulk lanes. Started by the service alone. */
import { Socket } from "node:net";
import { createPeer } from "@capsem/rpc";
import { readPlan, runToEnd } from "@capsem/worker";
import { plainMethods, streamMethods } from "./methods.ts";
import { Owner } from "./owner.ts";
import { SPAWN_PLAN } from "./plan.ts";
import { nodePowers } from "./powers-node.ts";

async function main(): Promise<void> {
  const powers = nodePowers();
  const plan = await readPlan(process.stdin, SPAWN_PLAN);
  const duplex = new Socket({ fd: plan.descriptors.rpc, readable: true, writable: true });
  const tell = {
    health: (_guest: "ok" | "unresponsive"): void => undefined,
    traffic: (_isOpen: boolean): void => undefined,
  };
  const owner = new Owner(plan, {
    ...powers,
    onHealth: (guest) => tell.health(guest),
    onTraffic: (isOpen) => tell.traffic(isOpen),
  });
  const peer = createPeer({
    role: "guest",
    duplex,
    handlers: plainMethods(owner),
    streaming: streamMethods(owner),
  });
  tell.health = (guest) => {
    peer
      .call("owner.health", { guest }, { timeoutMs: 5_000 })
      .catch((cause: unknown) => powers.log("warning", "health not told", { cause: String(cause) }));
  };
  tell.traffic = (isOpen) => {
    peer
      .call("owner.traffic", { is_open: isOpen }, { timeoutMs: 5_000 })
      .catch((cause: unknown) => powers.log("warning", "traffic not told", { cause: String(cause) }));
  };
  const { reason, detail } = await owner.run(peer);
  powers.log(reason === null ? "info" : "error", "VM ended", { reason, detail });
  await peer
    .call("owner.gone", { reason, detail: detail.slice(0, 1000) }, { timeoutMs: 2_000 })
    .catch(() => undefined);
  process.exit(reason === null ? 0 : 1);
}

void runToEnd("owner", main, process);
