import { ASK_ROUTES } from "./ask-routes.ts";
import { ERRORS, type ErrorKind } from "./error-table.ts";
import { EVIDENCE_ROUTES } from "./evidence-routes.ts";
import { FILE_ROUTES } from "./file-routes.ts";
import { MCP_ROUTES } from "./mcp-routes.ts";
import { POLICY_ROUTES } from "./policy-routes.ts";
import type { Absent, Route } from "./route.ts";
import { SERVICE_ROUTES } from "./service-routes.ts";
import { VM_ROUTES } from "./vm-routes.ts";
import { WORK_ROUTES } from "./work-routes.ts";

const AREAS: readonly (readonly [string, Readonly<Record<string, Route>>])[] = [
  ["Service", SERVICE_ROUTES],
  ["VMs", VM_ROUTES],
  ["Work in a VM", WORK_ROUTES],
  ["Files", FILE_ROUTES],
  ["Rules, settings, corporate policy", POLICY_ROUTES],
  ["Asks and credentials", ASK_ROUTES],
  ["Tool servers", MCP_ROUTES],
  ["Evidence", EVIDENCE_ROUTES],
];

/** docs/api.md: every route with its SDK method, tool and command, then every error kind. */
export function apiPage(): string {
  return [
    "# API",
    "",
    "Made from the route table of `packages/api`; schemas are in [openapi.json](openapi.json). The gateway serves these",
    "routes to whoever has the token (`Authorization: Bearer …`); the same routes are on the service's own socket for the",
    `user who runs it, without one. The gateway asks for no token on ${openRoutes()} alone.`,
    "",
    "Of the marks after a route, *read* is one that changes nothing, *WebSocket* one that takes an upgrade and no plain",
    "request, *no token* one that the gateway answers to anybody on this machine.",
    "",
    'An error is `{"error": {kind, reason, status, retryable}}`, all four always; beside them `rule_id` and `ask_id` where',
    "a rule refused, `needs_files: true` where it refused a tree because it judges single files, `grant` where a tool",
    "server's private address was refused and this `HOST:PORT` would allow it, `faults` where a file or an edit has them.",
    "A route that changes something is never repeated by our clients; where its answer was lost the error says that the",
    "outcome is unknown.",
    ...AREAS.flatMap(([title, routes]) => ["", `## ${title}`, "", ...table(routes)]),
    "",
    "## Errors",
    "",
    "| kind | status | may succeed later |",
    "|---|---|---|",
    ...Object.entries(ERRORS).map(
      ([kind, { status, retryable }]) => `| ${kind} | ${status} | ${retryable ? "yes" : "no"} |`,
    ),
    "",
  ].join("\n");
}

function table(routes: Readonly<Record<string, Route>>): string[] {
  return [
    "| route | what | SDK | MCP tool | command | errors |",
    "|---|---|---|---|---|---|",
    ...Object.values(routes).map((route) => {
      const parameters = Object.keys(route.query?.shape ?? {});
      const query = parameters.length === 0 ? "" : ` ?${parameters.join(" ")}`;
      const name = `\`${route.method} ${route.path}\`${query}${marksOf(route)}`;
      return `| ${[name, route.summary, `\`${route.sdk}\``, sideOf(route.tool), sideOf(route.command), errorsOf(route.errors)].join(" | ")} |`;
    }),
  ];
}

function marksOf(route: Route): string {
  const marks = [
    ...(route.mutates ? [] : ["read"]),
    ...(route.request === "websocket" ? ["WebSocket"] : []),
    ...(route.isOpen === true ? ["no token"] : []),
  ];
  return marks.length === 0 ? "" : ` (${marks.join(", ")})`;
}

function openRoutes(): string {
  const open = AREAS.flatMap(([, routes]) => Object.values(routes)).filter(({ isOpen }) => isOpen === true);
  return open.map(({ method, path }) => `\`${method} ${path}\``).join(", ");
}

function sideOf(side: string | Absent): string {
  return typeof side === "string" ? `\`${side}\`` : `– (${side.none})`;
}

function errorsOf(kinds: readonly ErrorKind[]): string {
  return kinds.length === 0 ? "–" : kinds.join(", ");
}
