import { type SpawnPlan, spawnPlan } from "@capsem/api";
import type { PlanForm } from "@capsem/worker";
import { OWNER_LIMITS } from "./limits.ts";

export const SPAWN_PLAN: PlanForm<SpawnPlan> = {
  name: "the spawn plan",
  schema: spawnPlan,
  fault: () => null,
  bytesMax: OWNER_LIMITS.planBytesMax,
};
