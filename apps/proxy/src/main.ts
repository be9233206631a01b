/** The proxy: the one process that parses what a guest says to its tools. Started by the service alone. */
import { readPlan, runToEnd } from "@capsem/worker";
import { PROXY_PLAN } from "./plan.ts";
import { nodePowers } from "./powers-node.ts";
import { live } from "./proxy-life.ts";

async function main(): Promise<void> {
  const powers = nodePowers();
  const plan = await readPlan(process.stdin, PROXY_PLAN);
  await live({ ...powers, plan, seal: powers.prepareSeal(plan) });
}

void runToEnd("proxy", main, process);
