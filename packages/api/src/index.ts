export { checkEnv } from "./env-table.ts";
export { apiFailure, ERROR_KINDS, ERRORS, type ErrorKind, isErrorKind, toApiFailure } from "./error-table.ts";
export { JOB_LIMITS } from "./job-limits.ts";
export {
  OWNER_METHODS,
  type OwnerJobEnd,
  type OwnerMethod,
  type OwnerParams,
  type OwnerResult,
  SERVICE_METHODS,
  type SpawnPlan,
  spawnPlan,
  type UpEnd,
  upEnd,
} from "./owner-contract.ts";
export {
  type FileInfo,
  ROUTES,
  type Route,
  type RouteName,
  type ServiceStatus,
  serviceStatus,
} from "./route-table.ts";
export * from "./vm-schema.ts";
