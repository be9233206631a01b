/** The builtin tools: pages of the web, by way of egress, and an echo. Started by the service alone. */
import { isMainThread } from "node:worker_threads";
import { readPlan, runToEnd } from "@capsem/worker";
import { live } from "./builtin-life.ts";
import { BUILTIN_PLAN } from "./plan.ts";
import { nodePowers } from "./powers-node.ts";

async function main(): Promise<void> {
  const powers = nodePowers();
  const plan = await readPlan(process.stdin, BUILTIN_PLAN);
  await live({ ...powers, plan, seal: powers.prepareSeal(plan) });
}

if (isMainThread) void runToEnd("builtin", main, process);
else {
  // What reads pages is large: the main thread never makes it run.
  void import("./page-thread.ts").then(({ runPageThread }) => runPageThread());
}
