import { ASK_ROUTES } from "./ask-routes.ts";
import { EVIDENCE_ROUTES } from "./evidence-routes.ts";
import { FILE_ROUTES } from "./file-routes.ts";
import { MCP_ROUTES } from "./mcp-routes.ts";
import { POLICY_ROUTES } from "./policy-routes.ts";
import type { Route } from "./route.ts";
import { SERVICE_ROUTES } from "./service-routes.ts";
import { VM_ROUTES } from "./vm-routes.ts";
import { WORK_ROUTES } from "./work-routes.ts";

/**
 * The one route table: router, gateway allow-list, SDK operations, MCP tools, OpenAPI and docs derive from
 * it; nothing else names a path (API spec, "Routes").
 */
export const ROUTES = {
  ...SERVICE_ROUTES,
  ...VM_ROUTES,
  ...WORK_ROUTES,
  ...FILE_ROUTES,
  ...POLICY_ROUTES,
  ...ASK_ROUTES,
  ...MCP_ROUTES,
  ...EVIDENCE_ROUTES,
} as const satisfies Record<string, Route>;

export type RouteName = keyof typeof ROUTES;
