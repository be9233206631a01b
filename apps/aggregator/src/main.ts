/** The aggregator: sessions with external MCP servers, for one proxy. Started by the service alone. */
import { readPlan, runToEnd } from "@capsem/worker";
import { live } from "./aggregator-life.ts";
import { AGGREGATOR_PLAN } from "./plan.ts";
import { nodePowers } from "./powers-node.ts";

async function main(): Promise<void> {
  const powers = nodePowers();
  const plan = await readPlan(process.stdin, AGGREGATOR_PLAN);
  await live({ ...powers, plan, seal: powers.prepareSeal(plan) });
}

void runToEnd("aggregator", main, process);
