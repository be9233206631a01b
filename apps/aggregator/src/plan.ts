import { type WorkerPlan, workerPlan } from "@capsem/api";
import type { PlanForm } from "@capsem/worker";

export const AGGREGATOR_PLAN: PlanForm<WorkerPlan> = {
  name: "the aggregator's plan",
  schema: workerPlan,
  fault: ({ kind, descriptors }) => {
    if (kind !== "aggregator") return `it is for ${kind}`;
    if (descriptors.lane !== undefined) return "it has a lane";
    return descriptors.service === descriptors.grants ? "two channels are one descriptor" : null;
  },
};
