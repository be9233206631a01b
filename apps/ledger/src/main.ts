/** The ledger: the one process that opens the databases of evidence. Started by the service alone. */
import { isMainThread, workerData } from "node:worker_threads";
import { messageOf } from "@capsem/base";
import { warmSqlite } from "@capsem/ledger";
import { readPlan, runToEnd } from "@capsem/worker";
import { live } from "./ledger-life.ts";
import { LEDGER_PLAN } from "./plan.ts";
import { nodePowers } from "./powers-node.ts";
import { runThread } from "./thread.ts";

async function main(): Promise<void> {
  const powers = nodePowers();
  const plan = await readPlan(process.stdin, LEDGER_PLAN);
  const seal = powers.prepareSeal(plan);
  warmSqlite();
  const die = (message: string, cause: unknown) => {
    powers.log("error", message, { cause: messageOf(cause) });
    process.exit(1);
  };
  await live({ ...powers, plan, seal, die });
}

if (isMainThread) void runToEnd("ledger", main, process);
else runThread(workerData);
