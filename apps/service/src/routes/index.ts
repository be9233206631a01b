import { type JudgedHandlers, throughBoundary } from "../boundary/through-boundary.ts";
import type { Handlers } from "../http/handler.ts";
import { fileRoutes } from "./file-routes.ts";
import { jobRoutes } from "./job-routes.ts";
import { logRoutes } from "./log-routes.ts";
import type { RouteParts } from "./parts.ts";
import { serviceRoutes } from "./service-routes.ts";
import { vmRoutes } from "./vm-routes.ts";

export type { RouteParts } from "./parts.ts";

function vmSide(parts: RouteParts) {
  return {
    ...serviceRoutes(parts),
    ...vmRoutes(parts),
    ...jobRoutes(parts),
    ...fileRoutes(parts),
    ...logRoutes(parts),
  };
}

/** Handlers of rules, asks, credentials, tools and evidence: they pass the boundary themselves, where they change anything. */
export type EvidenceHandlers = Omit<JudgedHandlers, keyof ReturnType<typeof vmSide>>;

/** Exactly one handler for each route of the table: the compiler says when one is missing. */
export function createHandlers(parts: RouteParts, evidence: EvidenceHandlers): Handlers {
  return throughBoundary(parts, { ...vmSide(parts), ...evidence });
}
