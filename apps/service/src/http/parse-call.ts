import { apiFailure, faultLine, parseOrFaults, ROUTES, type Route, type RouteMatch } from "@capsem/api";
import * as z from "zod";

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
  const known = route.query?.shape ?? {};
  const query: Record<string, string> = {};
  for (const [key, value] of new URLSearchParams(search)) {
    if (Object.hasOwn(query, key)) {
      throw apiFailure("invalid_input", `Cannot read the request: parameter "${key}" is given twice`);
    }
    // The schema would not see a name such as __proto__, which is no key of the object that it is set on.
    if (!Object.hasOwn(known, key)) {
      throw apiFailure(
        "invalid_input",
        `Cannot read the request: query: no parameter ${JSON.stringify(key.slice(0, 64))}`,
      );
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
  const parsed = parseOrFaults(schema ?? nothing, value);
  if (parsed.kind === "value") return schema === undefined ? undefined : parsed.value;
  throw apiFailure("invalid_input", `Cannot read the request: ${where}: ${faultLine(parsed.faults)}`);
}
