import { type WorkerPlan, workerPlan } from "@capsem/api";
import type { PlanForm } from "@capsem/worker";

export const PROXY_PLAN: PlanForm<WorkerPlan> = {
  name: "the proxy's plan",
  schema: workerPlan,
  fault: ({ kind, descriptors, lane, vm }) => {
    if (kind !== "proxy") return `it is one of a ${kind}`;
    if ((descriptors.lane === undefined) !== (lane === undefined)) return "half of a lane";
    if ((vm === null) !== (lane === undefined)) return "a VM has a lane, and nothing else has";
    const fds = Object.values(descriptors);
    return new Set(fds).size < fds.length ? "two of its descriptors are one" : null;
  },
};
