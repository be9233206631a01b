import { Failure } from "@capsem/base";
import { type Era, eraOf, type JsonValue, META_KEYS } from "@capsem/mcp-protocol";
import { type Abilities, NO_ABILITIES } from "../call/caller.ts";
import { objectParam, type Params } from "../call/params.ts";
import type { Client } from "../conversation.ts";
import { clientNameOf, SUPPORTED_REVISIONS } from "./hello.ts";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/** What a client has said of itself by its handshake. */
export interface ClientState {
  isInitialized: boolean;
  name: string | null;
  abilities: Abilities;
  /** Undefined: it has not said; it is told all. */
  logLevel: number | undefined;
  /** The same by its name. */
  level: string | undefined;
}

export function newState(): ClientState {
  return { isInitialized: false, name: null, abilities: NO_ABILITIES, logLevel: undefined, level: undefined };
}

/** What one request says of its client, or the handshake before it did. */
export interface Said {
  readonly era: Era;
  readonly name: string | null;
  readonly abilities: Abilities;
  readonly logLevel: number | undefined;
  /** By the handshake's `logging/setLevel` alone: a request of the other era has its own. */
  readonly level: string | undefined;
  readonly traceId: string | null;
  /** JSON text. */
  readonly progressToken: string | undefined;
}

/** Throws Failure("unsupported_version"). */
export function readSaid(client: Client, state: ClientState, params: Params): Said {
  const meta = params._meta === undefined ? undefined : objectParam(params, "_meta");
  const era = eraOfRequest(client, meta);
  const traceId = traceIdOf(meta?.[META_KEYS.traceparent]);
  const progressToken = progressTokenOf(meta?.[META_KEYS.progressToken]);
  if (era === "legacy") {
    const { name, abilities, logLevel, level } = state;
    return { era, name, abilities, logLevel, level, traceId, progressToken };
  }
  const wanted = meta?.[META_KEYS.logLevel];
  return {
    era,
    name: clientNameOf(asObject(meta?.[META_KEYS.clientInfo])) ?? state.name,
    abilities: abilitiesOf(asObject(meta?.[META_KEYS.clientCapabilities])),
    // It is told nothing that it has not asked for.
    logLevel: typeof wanted === "string" ? levelOf(wanted) : LEVELS.length,
    level: undefined,
    traceId,
    progressToken,
  };
}

export function abilitiesOf(capabilities: Params | undefined): Abilities {
  return {
    sampling: asObject(capabilities?.sampling) !== undefined,
    elicitation: asObject(capabilities?.elicitation) !== undefined,
    roots: asObject(capabilities?.roots) !== undefined,
  };
}

/** An unknown one counts as the gravest: better told than lost. */
export function levelOf(level: string): number {
  const known = LEVELS.indexOf(level);
  return known < 0 ? LEVELS.length - 1 : known;
}

export function isLevel(level: string): boolean {
  return LEVELS.includes(level);
}

export function asObject(value: JsonValue | undefined): Params | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Params) : undefined;
}

/** The request's own word counts, then that of its transport; without any it is one of a handshake. */
function eraOfRequest(client: Client, meta: Params | undefined): Era {
  const said = meta?.[META_KEYS.protocolVersion];
  if (typeof said === "string") {
    const era = eraOf(said);
    if (era !== null) return era;
    throw new Failure("unsupported_version", `Cannot speak ${JSON.stringify(said.slice(0, 64))}`, {
      facts: { supported: SUPPORTED_REVISIONS, requested: said.slice(0, 64) },
    });
  }
  return client.protocolHint !== null && eraOf(client.protocolHint) === "modern" ? "modern" : "legacy";
}

/** Of a W3C traceparent. */
function traceIdOf(traceparent: JsonValue | undefined): string | null {
  if (typeof traceparent !== "string") return null;
  return /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/.exec(traceparent)?.[1] ?? null;
}

function progressTokenOf(token: JsonValue | undefined): string | undefined {
  return typeof token === "string" || typeof token === "number" ? JSON.stringify(token) : undefined;
}
