import * as z from "zod";
import { ERRORS, type ErrorKind } from "./error-table.ts";
import { fileInfo } from "./file-routes.ts";
import { askInfo, credentialInfo, lintFinding, policyFault, ruleInfo, settingInfo } from "./policy-schema.ts";
import type { Route } from "./route.ts";
import { ROUTES } from "./route-table.ts";
import { finding, logWindow, panic, serviceStats, serviceStatus } from "./service-schema.ts";
import {
  createRequest,
  execRequest,
  execResult,
  jobInfo,
  runRequest,
  streamData,
  vmInfo,
} from "./vm-schema.ts";

type Json = Readonly<Record<string, unknown>>;

/** Schemas with a name of their own; wherever one occurs, the document refers to it. */
const NAMED: Readonly<Record<string, z.ZodType>> = {
  StreamData: streamData,
  VmInfo: vmInfo,
  JobInfo: jobInfo,
  FileInfo: fileInfo,
  CreateRequest: createRequest,
  ExecRequest: execRequest,
  RunRequest: runRequest,
  ExecResult: execResult,
  LogWindow: logWindow,
  Panic: panic,
  Finding: finding,
  ServiceStatus: serviceStatus,
  ServiceStats: serviceStats,
  RuleInfo: ruleInfo,
  LintFinding: lintFinding,
  PolicyFault: policyFault,
  SettingInfo: settingInfo,
  AskInfo: askInfo,
  CredentialInfo: credentialInfo,
};

/** Kinds that any route may answer with, beside those of its row. */
const COMMON: readonly ErrorKind[] = ["invalid_input", "internal"];
const BEHIND_TOKEN: readonly ErrorKind[] = ["unauthorized", "origin_refused", "throttled"];
const BEHIND_GATEWAY: readonly ErrorKind[] = ["service_away"];

/** The route table as an OpenAPI 3.1 document: what the gateway serves. */
export function openApiDocument(): Json {
  const named = namedSchemas();
  const paths: Record<string, Record<string, unknown>> = {};
  for (const [name, route] of Object.entries<Route>(ROUTES)) {
    const item = paths[route.path] ?? {};
    item[route.method.toLowerCase()] = operationOf(name, route, named);
    paths[route.path] = item;
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Capsem",
      version: "0.1.0",
      description: "Made from the route table of packages/api. A number in a path or query is decimal text.",
    },
    servers: [{ url: "http://127.0.0.1:19222", description: "The gateway, on this machine alone" }],
    security: [{ token: [] }],
    paths,
    components: {
      securitySchemes: {
        token: { type: "http", scheme: "bearer", description: "64 characters from run/gateway.token" },
      },
      schemas: {
        ...Object.fromEntries([...named].map(([text, id]) => [id, inner(text, named)])),
        Error: ERROR,
      },
    },
  };
}

const ERROR: Json = {
  type: "object",
  properties: {
    error: {
      type: "object",
      properties: {
        kind: { type: "string", enum: Object.keys(ERRORS) },
        reason: { type: "string" },
        status: { type: "integer" },
        retryable: { type: "boolean" },
        rule_id: { type: "string" },
        ask_id: { type: "string" },
        needs_files: { type: "boolean" },
        grant: { type: "string" },
        faults: { type: "array", items: { type: "object" } },
      },
      required: ["kind", "reason", "status", "retryable"],
    },
  },
  required: ["error"],
};

function operationOf(name: string, route: Route, named: ReadonlyMap<string, string>): Json {
  const parameters = [
    ...parametersOf("path", route.params, named),
    ...parametersOf("query", route.query, named),
  ];
  return {
    operationId: name,
    summary: route.summary,
    ...(route.isOpen === true ? { security: [] } : {}),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(route.request === "json" || route.request === "bytes"
      ? { requestBody: { required: true, content: contentOf(route.request, route.body, named, "input") } }
      : {}),
    responses: { ...goodAnswer(route, named), ...errorAnswers(route) },
    "x-capsem-mutates": route.mutates,
    "x-capsem-sdk": route.sdk,
    ...(typeof route.tool === "string" ? { "x-capsem-tool": route.tool } : {}),
    ...(typeof route.command === "string" ? { "x-capsem-command": route.command } : {}),
  };
}

function goodAnswer(route: Route, named: ReadonlyMap<string, string>): Json {
  if (route.response === "websocket") {
    return { "101": { description: "The WebSocket is open" } };
  }
  return {
    "200": {
      description: route.summary,
      ...(route.response === "none"
        ? {}
        : { content: contentOf(route.response, route.result, named, "output") }),
    },
  };
}

/** One answer a status: several kinds may share it. */
function errorAnswers(route: Route): Json {
  const kinds = new Set([
    ...COMMON,
    ...route.errors,
    ...(route.isOpen === true ? BEHIND_GATEWAY : [...BEHIND_TOKEN, ...BEHIND_GATEWAY]),
  ]);
  const byStatus = new Map<number, ErrorKind[]>();
  for (const kind of kinds) {
    const { status } = ERRORS[kind];
    byStatus.set(status, [...(byStatus.get(status) ?? []), kind]);
  }
  const content = { "application/json": { schema: { $ref: "#/components/schemas/Error" } } };
  return Object.fromEntries(
    [...byStatus].map(([status, kindsOfIt]) => [
      String(status),
      { description: kindsOfIt.sort().join(", "), content },
    ]),
  );
}

function parametersOf(
  where: "path" | "query",
  schema: z.ZodObject | undefined,
  named: ReadonlyMap<string, string>,
): Json[] {
  if (schema === undefined) return [];
  const { properties = {}, required = [] } = jsonSchema(schema, "input");
  return Object.entries(properties as Json).map(([name, found]) => ({
    name,
    in: where,
    required: where === "path" || (required as string[]).includes(name),
    schema: refer(found, named),
  }));
}

function contentOf(
  kind: Route["response"],
  schema: z.ZodType | undefined,
  named: ReadonlyMap<string, string>,
  io: "input" | "output",
): Json {
  if (kind === "bytes")
    return { "application/octet-stream": { schema: { type: "string", format: "binary" } } };
  const found = schema === undefined ? {} : refer(jsonSchema(schema, io), named);
  return { [kind === "ndjson" ? "application/x-ndjson" : "application/json"]: { schema: found } };
}

function jsonSchema(schema: z.ZodType, io: "input" | "output"): Json {
  const { $schema: _, ...found } = z.toJSONSchema(schema, { io });
  return found;
}

/** From a schema's JSON text to its name. */
function namedSchemas(): ReadonlyMap<string, string> {
  const named = new Map<string, string>();
  for (const [id, schema] of Object.entries(NAMED)) {
    named.set(JSON.stringify(jsonSchema(schema, id.endsWith("Request") ? "input" : "output")), id);
  }
  return named;
}

/** A named schema's own body, in which the other named ones are references. */
function inner(text: string, named: ReadonlyMap<string, string>): unknown {
  const others = new Map([...named].filter(([other]) => other !== text));
  return refer(JSON.parse(text), others);
}

function refer(value: unknown, named: ReadonlyMap<string, string>): unknown {
  if (typeof value !== "object" || value === null) return value;
  const id = named.get(JSON.stringify(value));
  if (id !== undefined) return { $ref: `#/components/schemas/${id}` };
  if (Array.isArray(value)) return value.map((item) => refer(item, named));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, refer(item, named)]));
}
