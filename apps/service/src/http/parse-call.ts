import { apiFailure, ROUTES, type Route } from "@capsem/api";
import * as z from "zod";
import type { RouteMatch } from "./router.ts";

export interface ParsedParts {
  readonly params: unknown;
  readonly query: unknown;
}

export function routeOf(match: RouteMatch): Route {
  return ROUTES[match.name];
}

/** Path and query by the route's schemas. A parameter that the route does not take is an error. */
export function parseParts(match: RouteMatch, search: string): ParsedParts {
  const route = routeOf(match);
  const query: Record<string, string> = {};
  for (const [key, value] of new URLSearchParams(search)) {
    if (Object.hasOwn(query, key)) {
      throw apiFailure("invalid_input", `Cannot read the request: parameter "${key}" is given twice`);
    }
    query[key] = value;
  }
  return {
    params: parseWith(route.params, match.params, "path"),
    query: parseWith(route.query, query, "query"),
  };
}

export function parseBody(match: RouteMatch, body: unknown): unknown {
  return parseWith(routeOf(match).body, body, "body");
}

const nothing = z.strictObject({});

function parseWith(schema: z.ZodType | undefined, value: unknown, where: string): unknown {
  const parsed = (schema ?? nothing).safeParse(value);
  if (parsed.success) return schema === undefined ? undefined : parsed.data;
  const issues = parsed.error.issues.slice(0, 3).map(({ path, message }) => {
    return path.length === 0 ? message : `${path.join(".")}: ${message}`;
  });
  throw apiFailure("invalid_input", `Cannot read the request: ${where}: ${issues.join("; ")}`);
}
