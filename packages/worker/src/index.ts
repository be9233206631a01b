export { type GrantSocket, type GrantsOptions, readGrants } from "./grants.ts";
export { createLog, type Log } from "./log.ts";
export { type PlanForm, parsePlan, readPlan } from "./plan.ts";
export { type ProcessEnd, runToEnd } from "./run.ts";
