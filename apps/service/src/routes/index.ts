import type { Handlers } from "../http/handler.ts";
import { fileRoutes } from "./file-routes.ts";
import { jobRoutes } from "./job-routes.ts";
import { logRoutes } from "./log-routes.ts";
import type { RouteParts } from "./parts.ts";
import { serviceRoutes } from "./service-routes.ts";
import { vmRoutes } from "./vm-routes.ts";

export type { RouteParts } from "./parts.ts";

/** Exactly one handler for each route of the table: the compiler says when one is missing. */
export function createHandlers(parts: RouteParts): Handlers {
  return {
    ...serviceRoutes(parts),
    ...vmRoutes(parts),
    ...jobRoutes(parts),
    ...fileRoutes(parts),
    ...logRoutes(parts),
  };
}
