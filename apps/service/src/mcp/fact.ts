import { OUTCOMES, type Outcome, type ProxyFact } from "@capsem/api";
import { type Decision, FIELDS, isEventType, type MatchedRule } from "@capsem/policy";
import { FACT_LIMITS } from "./limits.ts";

/**
 * What a proxy says, checked by hand: it comes ten thousand times a second, from a process that parses what a guest
 * wrote. What follows relies on these shapes and on nothing that they do not say.
 */
export type DecisionFact = Omit<Extract<ProxyFact, { kind: "decision" }>, "event" | "decision"> & {
  readonly event: FactEvent;
  readonly decision: Decision;
};
export type Verdict = Pick<Decision, "action" | "rule_id" | "reason">;
export type CallFact = Omit<Extract<ProxyFact, { kind: "call" }>, "decision"> & {
  readonly decision: Verdict;
};
export type NetFact = Extract<ProxyFact, { kind: "net" }>;
export type Fact = DecisionFact | CallFact | NetFact;

export interface FactEvent {
  readonly type: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

type Fields = Readonly<Record<string, unknown>>;

/** The fact, or what is wrong with it. `vmId`: of whom it may speak. */
export function readFact(value: unknown, vmId: string | null): Fact | string {
  if (!isFields(value)) return "it is no object";
  const who = whoFault(value.who);
  if (who !== null) return who;
  switch (value.kind) {
    case "decision":
      return readDecision(value, vmId);
    case "call":
      return readCall(value);
    case "net":
      return netFault(value) ?? (value as unknown as NetFact);
    default:
      return "its kind is unknown";
  }
}

function readDecision(value: Fields, vmId: string | null): DecisionFact | string {
  const { event, who, policy_digest } = value;
  if (!isId(policy_digest)) return "it names no rules";
  if (!isFields(event) || typeof event.type !== "string") return "its event has no type";
  // Other acts are the service's own to judge.
  if (!event.type.startsWith("mcp.") || !isEventType(event.type)) return "its event is none of a tool's";
  const fault = fieldsFault(event.fields, vmId);
  if (fault !== null) return fault;
  const decision = readDecided(value.decision);
  if (typeof decision === "string") return decision;
  const fields = event.fields as Fields;
  return {
    kind: "decision",
    who: who as Fact["who"],
    event: { type: event.type, fields },
    decision,
    policy_digest,
  };
}

function fieldsFault(fields: unknown, vmId: string | null): string | null {
  if (!isFields(fields)) return "its event has no fields";
  const paths = Object.keys(fields);
  if (paths.length > FACT_LIMITS.fieldsMax) return "its event has too many fields";
  for (const path of paths)
    if (!Object.hasOwn(FIELDS, path)) return "its event has a field that there is not";
  // An event that could not be made has none at all.
  if (paths.length > 0 && (fields["vm.id"] ?? null) !== vmId) return "its event is about another VM";
  return null;
}

function readDecided(value: unknown): Decision | string {
  const verdict = readVerdict(value);
  if (typeof verdict === "string") return verdict;
  const given = value as Fields;
  const matched = matchedIn(given);
  if (matched === null) return "its decision does not say what matched";
  return {
    action: verdict.action,
    rule_id: verdict.rule_id,
    reason: verdict.reason,
    detection: detectionOf(given.detection),
    changes: NO_CHANGES,
    explanation: { matched, why: "no_rule", allowed: NO_HINTS },
  };
}
const NO_CHANGES: Decision["changes"] = [];
const NO_HINTS: Decision["explanation"]["allowed"] = [];

function readVerdict(value: unknown): Verdict | string {
  if (!isFields(value)) return "it has no decision";
  const { action, rule_id, reason } = value;
  if (action !== "allow" && action !== "ask" && action !== "block") return "its decision is none";
  if (!isText(rule_id, FACT_LIMITS.nameCharactersMax)) return "its decision names no rule";
  if (typeof reason !== "string") return "its decision has no reason";
  return { action, rule_id, reason: reason.slice(0, FACT_LIMITS.reasonCharactersMax) };
}

function matchedIn({ explanation }: Fields): MatchedRule[] | null {
  const matched = isFields(explanation) ? explanation.matched : undefined;
  if (matched === undefined) return [];
  if (!Array.isArray(matched) || matched.length > FACT_LIMITS.matchedMax) return null;
  const rules: MatchedRule[] = [];
  for (const each of matched as readonly unknown[]) {
    if (!isFields(each)) return null;
    const { rule_id, action, priority, fault } = each;
    if (!isText(rule_id, FACT_LIMITS.nameCharactersMax) || !isId(action)) return null;
    if (typeof priority !== "number") return null;
    rules.push({
      rule_id,
      action: action as MatchedRule["action"],
      priority,
      detection: detectionOf(each.detection),
      fault: typeof fault === "string" ? fault.slice(0, FACT_LIMITS.reasonCharactersMax) : undefined,
    });
  }
  return rules;
}

function detectionOf(value: unknown): Decision["detection"] {
  return (isId(value) ? value : "none") as Decision["detection"];
}

function readCall(value: Fields): CallFact | string {
  const { call, outcome, error, duration_ms } = value;
  if (!isFields(call)) return "it has no call";
  if (!OUTCOMES.includes(outcome as Outcome)) return "its outcome is unknown";
  if (!isOptional(error, FACT_LIMITS.reasonCharactersMax * 4)) return "its error is no text";
  if (!(duration_ms === null || isWhole(duration_ms) || Number.isFinite(duration_ms)))
    return "its time is none";
  const fault = callFault(call) ?? bodiesFault(value.bodies);
  if (fault !== null) return fault;
  const decision = readVerdict(value.decision);
  if (typeof decision === "string") return decision;
  const given = value as unknown as CallFact;
  const fact: CallFact = {
    kind: "call",
    who: given.who,
    call: given.call,
    decision,
    outcome: given.outcome,
    error: given.error,
    duration_ms: given.duration_ms,
  };
  return given.bodies == null ? fact : { ...fact, bodies: given.bodies };
}

const ORIGINS: readonly unknown[] = ["mcp", "builtin"];
const TRANSPORTS: readonly unknown[] = ["framed", "http", "direct"];

function callFault(call: Fields): string | null {
  const { nameCharactersMax, idCharactersMax, labelCharactersMax, reasonCharactersMax } = FACT_LIMITS;
  if (!ORIGINS.includes(call.origin) || !TRANSPORTS.includes(call.transport))
    return "its call came by no way";
  for (const name of ["call_id", "server_name", "tool_name", "method"]) {
    if (!isText(call[name], nameCharactersMax)) return `its call has no ${name}`;
  }
  if (!isOptional(call.request_id, idCharactersMax * 8)) return "its request's id is no text";
  if (!isOptional(call.process_name, nameCharactersMax)) return "its process has no name";
  for (const name of ["arguments_preview", "response_preview"]) {
    if (!isOptional(call[name], reasonCharactersMax * 4)) return `its ${name} is no text`;
  }
  for (const name of ["bytes_sent", "bytes_received"]) {
    if (call[name] !== null && !isWhole(call[name])) return `its ${name} is no number`;
  }
  if (!isText(call.label_in, labelCharactersMax) || !isOptional(call.label_out, labelCharactersMax))
    return "its label is no text";
  return typeof call.is_pinned === "boolean" ? null : "it does not say whether its tool is pinned";
}

function bodiesFault(bodies: unknown): string | null {
  if (bodies === undefined || bodies === null) return null;
  if (!isFields(bodies)) return "its bodies are none";
  for (const name of ["request", "response"]) {
    const body = bodies[name];
    if (body === undefined || body === null) continue;
    if (!isFields(body) || typeof body.text !== "string" || !isWhole(body.bytes))
      return `its ${name} is no body`;
  }
  return null;
}

function netFault({ net, outcome, reason }: Fields): string | null {
  if (!isFields(net)) return "it says of no request";
  if (outcome !== "blocked" && outcome !== "failed") return "its outcome is unknown";
  if (!isText(reason, FACT_LIMITS.reasonCharactersMax)) return "it gives no reason";
  const { nameCharactersMax, reasonCharactersMax } = FACT_LIMITS;
  if (!isText(net.kind, nameCharactersMax) || !isText(net.host, nameCharactersMax)) return "it names no host";
  for (const name of ["process_name", "method"]) {
    if (!isOptional(net[name], nameCharactersMax)) return `its ${name} is no text`;
  }
  if (!isOptional(net.path, reasonCharactersMax)) return "its path is no text";
  for (const name of ["port", "status"]) {
    if (net[name] !== null && !isWhole(net[name])) return `its ${name} is no number`;
  }
  return null;
}

const EVENT_ID = /^[0-9a-f]{12}$/;
const TIME_MS_MAX = 8.64e15;

function whoFault(who: unknown): string | null {
  if (!isFields(who)) return "it does not say who asked";
  const { event_id, time_ms, trace_id, turn_id, requester, client, token_id } = who;
  if (typeof event_id !== "string" || !EVENT_ID.test(event_id)) return "its id is none";
  if (typeof time_ms !== "number" || !(time_ms >= 0 && time_ms <= TIME_MS_MAX)) return "its time is none";
  const { idCharactersMax, nameCharactersMax } = FACT_LIMITS;
  if (!isOptional(trace_id, idCharactersMax) || !isOptional(turn_id, idCharactersMax * 2))
    return "its trace is none";
  if (!isText(requester, nameCharactersMax) || !isOptional(client, nameCharactersMax))
    return "it names nobody";
  return isOptional(token_id, idCharactersMax) ? null : "its token is none";
}

export function isFields(value: unknown): value is Fields {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array)
  );
}

function isText(value: unknown, charactersMax: number): value is string {
  return typeof value === "string" && value.length <= charactersMax;
}

function isId(value: unknown): value is string {
  return isText(value, FACT_LIMITS.idCharactersMax);
}

function isOptional(value: unknown, charactersMax: number): boolean {
  return value === null || isText(value, charactersMax);
}

function isWhole(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
