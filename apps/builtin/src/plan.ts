import { type WorkerPlan, workerPlan } from "@capsem/api";
import type { PlanForm } from "@capsem/worker";

export const BUILTIN_PLAN: PlanForm<WorkerPlan> = {
  name: "the plan of the builtin tools",
  schema: workerPlan,
  fault: ({ kind, descriptors, lane, vm }) => {
    if (kind !== "builtin") return `it is one of a ${kind}`;
    if (descriptors.lane !== undefined || lane !== undefined || vm !== null) return "it has a lane";
    return descriptors.service === descriptors.grants ? "two of its descriptors are one" : null;
  },
};
