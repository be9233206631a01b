import { type WorkerPlan, workerPlan } from "@capsem/api";
import type { PlanForm } from "@capsem/worker";

export const EGRESS_PLAN: PlanForm<WorkerPlan> = {
  name: "the plan of egress",
  schema: workerPlan,
  fault: ({ kind, descriptors, lane, vm }) => {
    if (kind !== "egress") return `it is one of a ${kind}`;
    if (lane !== undefined || descriptors.lane !== undefined || vm !== null) return "it is one of a VM";
    return descriptors.service === descriptors.grants ? "two of its descriptors are one" : null;
  },
};
