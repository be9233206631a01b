import { Failure } from "@capsem/base";
import { type JsonValue, META_KEYS, memberOf, withMember } from "@capsem/mcp-protocol";

export type Params = { readonly [key: string]: JsonValue };

/** Of one hop: the aggregator says its own to the server. */
const OF_OUR_HOP: ReadonlySet<string> = new Set([
  META_KEYS.protocolVersion,
  META_KEYS.clientInfo,
  META_KEYS.clientCapabilities,
]);
/** What we answer ourselves, or have not said that we can. */
const NOT_FORWARDED: ReadonlySet<string> = new Set(["_meta", "task", "cursor"]);

export function textParam(params: Params, name: string): string {
  const value = params[name];
  if (typeof value === "string" && value !== "") return value;
  throw invalidParams(`"${name}" is no text`);
}

export function objectParam(params: Params, name: string): Params | undefined {
  const value = params[name];
  if (value === undefined) return undefined;
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Params;
  throw invalidParams(`"${name}" is no object`);
}

/** The parameters of a request, with the level that a client of the handshake has set for all that are to come. */
export function withLogLevel(paramsText: string, level: string | undefined): string {
  if (level === undefined) return paramsText;
  const meta = memberOf(paramsText, "_meta");
  const said = withMember(meta ?? "{}", META_KEYS.logLevel, JSON.stringify(level));
  return withMember(paramsText, "_meta", said);
}

export function invalidParams(what: string): Failure {
  return new Failure("invalid_params", `Cannot use the parameters: ${what}`);
}

/** The same of a call, whose arguments are written already: they may be large. */
export function callText(params: Params, tool: string, argumentsText: string): string {
  return `${nameText(params, tool).slice(0, -1)},"arguments":${argumentsText}}`;
}

/** All but the arguments. */
export function nameText(params: Params, tool: string): string {
  const { arguments: _, ...rest } = params;
  return forwardText(rest, { name: tool });
}

/** What goes to the server: written anew, so that it reads what was judged. `own` replaces what the client called it. */
export function forwardText(params: Params, own: Params): string {
  const forward: { [key: string]: JsonValue } = {};
  for (const [key, value] of Object.entries(params)) if (!NOT_FORWARDED.has(key)) forward[key] = value;
  for (const [key, value] of Object.entries(own)) forward[key] = value;
  const meta = objectParam(params, "_meta");
  if (meta !== undefined) {
    const kept = Object.entries(meta).filter(([key]) => !OF_OUR_HOP.has(key));
    if (kept.length > 0) forward._meta = Object.fromEntries(kept);
  }
  return JSON.stringify(forward);
}
