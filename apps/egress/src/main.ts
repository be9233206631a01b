/** Egress: the one process that dials. Started by the service alone. */
import { readPlan, runToEnd } from "@capsem/worker";
import { trustedContext } from "./certificates.ts";
import { live } from "./egress-life.ts";
import { EGRESS_PLAN } from "./plan.ts";
import { nodePowers } from "./powers-node.ts";
import { warmHttp } from "./warm-http.ts";

async function main(): Promise<void> {
  const powers = nodePowers();
  const plan = await readPlan(process.stdin, EGRESS_PLAN);
  const seal = powers.prepareSeal(plan);
  const secureContext = trustedContext(powers.certificates());
  await warmHttp(powers.native);
  await live({ ...powers, plan, seal, secureContext });
}

void runToEnd("egress", main, process);
