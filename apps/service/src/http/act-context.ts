import type { IncomingMessage } from "node:http";
import type { ActContext, Principal } from "../act.ts";
import { CLIENT_LIMITS } from "../boundary/limits.ts";
import { parseTimeLeft, TIME_LEFT_HEADER } from "./time-left.ts";

/** Whoever reaches the socket is the user already: the header says only through which front. */
const REQUESTER_HEADER = "x-capsem-requester";
const GATEWAY: Principal = { kind: "gateway", name: "gateway" };

const CLIENT_HEADER = "x-capsem-client";
const ASKS_HEADER = "x-capsem-asks";
const TURN_HEADER = "x-capsem-turn";
/** The gateway sets it and lets none through, so beside the gateway's name it is the gateway's word. */
const TOKEN_HEADER = "x-capsem-token-id";

/** Who asks, from where, and how long: all that a request says beside what it wants. */
export function actContext(
  request: IncomingMessage,
  principal: Principal,
  signal: AbortSignal,
  random: (bytes: number) => Uint8Array,
): ActContext {
  const { headers } = request;
  const requester = headers[REQUESTER_HEADER] === GATEWAY.kind ? GATEWAY : principal;
  const timeLeftMs = parseTimeLeft(headers[TIME_LEFT_HEADER]);
  const trace = traceOf(headers.traceparent) ?? newTrace(random);
  return {
    requester,
    client: wordOf(headers[CLIENT_HEADER], PRINTABLE, CLIENT_LIMITS.nameCharactersMax),
    tokenId: requester.kind === "gateway" ? wordOf(headers[TOKEN_HEADER], TOKEN_ID, 8) : null,
    trace,
    traceId: trace.slice(3, 35),
    turn: wordOf(headers[TURN_HEADER], PRINTABLE, CLIENT_LIMITS.turnCharactersMax),
    asks: asksOf(headers[ASKS_HEADER]),
    timeLeftMs,
    signal: timeLeftMs === null ? signal : AbortSignal.any([signal, AbortSignal.timeout(timeLeftMs)]),
  };
}

function asksOf(header: string | string[] | undefined): ActContext["asks"] {
  return header === "later" || header === "own" ? header : "hold";
}

const PRINTABLE = /^[\x20-\x7e]+$/;
const TOKEN_ID = /^[0-9a-f]{8}$/;

/** What is not as it should be was not said: these words decide nothing, and a ledger's text must be readable. */
function wordOf(
  header: string | string[] | undefined,
  pattern: RegExp,
  charactersMax: number,
): string | null {
  if (typeof header !== "string" || header.length > charactersMax) return null;
  return pattern.test(header) ? header : null;
}

/** W3C Trace Context, version 00 and what later ones must begin with. An id of zeros is none. */
const TRACEPARENT =
  /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x21-\x7e]*)?$/;

function traceOf(header: string | string[] | undefined): string | null {
  if (typeof header !== "string" || header.length > CLIENT_LIMITS.traceCharactersMax) return null;
  return TRACEPARENT.test(header) ? header : null;
}

function newTrace(random: (bytes: number) => Uint8Array): string {
  const hex = Buffer.from(random(24)).toString("hex");
  return `00-${hex.slice(0, 32)}-${hex.slice(32)}-01`;
}
