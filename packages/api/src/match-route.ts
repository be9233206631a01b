import { ROUTES, type RouteName } from "./route-table.ts";

export interface RouteMatch {
  readonly name: RouteName;
  /** Decoded path parameters, unchecked. */
  readonly params: Readonly<Record<string, string>>;
}

interface Pattern {
  readonly name: RouteName;
  readonly segments: readonly string[];
}

const PATTERNS: ReadonlyMap<string, readonly Pattern[]> = buildPatterns();

/** The route of a request, or null. `pathname` is as it came, still percent-encoded. */
export function matchRoute(method: string, pathname: string): RouteMatch | null {
  const segments = pathname.split("/").slice(1);
  for (const { name, segments: pattern } of PATTERNS.get(`${method} ${segments.length}`) ?? []) {
    const params = matchSegments(pattern, segments);
    if (params !== null) return { name, params };
  }
  return null;
}

function matchSegments(
  pattern: readonly string[],
  segments: readonly string[],
): Record<string, string> | null {
  const params: Record<string, string> = {};
  for (const [index, expected] of pattern.entries()) {
    const found = segments[index];
    if (found === undefined) return null;
    if (!expected.startsWith("{")) {
      if (expected !== found) return null;
      continue;
    }
    const decoded = decodeSegment(found);
    if (decoded === null || decoded === "") return null;
    params[expected.slice(1, -1)] = decoded;
  }
  return params;
}

function decodeSegment(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch (thrown) {
    if (thrown instanceof URIError) return null;
    throw thrown;
  }
}

function buildPatterns(): Map<string, Pattern[]> {
  const patterns = new Map<string, Pattern[]>();
  for (const name of Object.keys(ROUTES) as RouteName[]) {
    const { method, path } = ROUTES[name];
    const segments = path.split("/").slice(1);
    const key = `${method} ${segments.length}`;
    patterns.set(key, [...(patterns.get(key) ?? []), { name, segments }]);
  }
  return patterns;
}
