/**
 * What a client needs, and no schema of it: it does not check again what a service answers. The products' client
 * programs have the table as plain data in its place (tools/plain-routes.mjs), because making all schemas takes time.
 */
export { ERRORS, type ErrorKind, isErrorKind } from "./error-table.ts";
export { JOB_LIMITS } from "./job-limits.ts";
export type { Route } from "./route.ts";
export { ROUTES, type RouteName } from "./route-table.ts";
