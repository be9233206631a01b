import {
  apiFailure,
  type ContractParams,
  type ContractResult,
  type PROXY_SERVICE_METHODS,
} from "@capsem/api";
import { Failure } from "@capsem/base";
import {
  boundLabels,
  type Decision,
  decide,
  eventFromJson,
  type PolicySnapshot,
  type SecurityEvent,
} from "@capsem/policy";
import type { RpcContext } from "@capsem/rpc";
import type { ActContext, Principal } from "../act.ts";
import { askBinding } from "../boundary/ask-digest.ts";
import type { Asks, VmFacts } from "../boundary/parts.ts";
import { GUEST } from "./fact-sink.ts";

type Held = ContractParams<typeof PROXY_SERVICE_METHODS, "ask.hold">;
export type HeldEnd = ContractResult<typeof PROXY_SERVICE_METHODS, "ask.hold">;

export interface GuestAskParts {
  readonly asks: Asks;
  readonly snapshot: () => PolicySnapshot;
  readonly digestKey: Uint8Array;
}

/**
 * Holds a call of a tool until a person has answered. The event is judged here again: an approval for always writes a
 * rule, and which rules it goes before is not for a proxy to say.
 */
export async function holdAsk(
  { asks, snapshot, digestKey }: GuestAskParts,
  held: Held,
  vm: VmFacts | null,
  { signal, timeLeftMs, trace }: Pick<RpcContext, "signal" | "timeLeftMs" | "trace">,
): Promise<HeldEnd> {
  const event = eventOf(held, vm);
  const rules = snapshot();
  const decision = decide(rules, event);
  if (decision.action !== "ask") return changedMeanwhile(decision);
  const { who, title, is_later: isLater } = held;
  const context: ActContext = {
    requester: principalOf(who.requester),
    client: who.client,
    tokenId: who.token_id,
    trace: trace ?? "",
    traceId: who.trace_id ?? "",
    turn: who.turn_id,
    asks: isLater ? "later" : "hold",
    timeLeftMs: timeLeftMs ?? null,
    signal,
  };
  const labels = boundLabels(rules, event, decision);
  const binding = await askBinding(digestKey, event, { vm, ...cutOf(event) }, labels);
  const { state, ask } = await asks.hold({ event, decision, title, vm, isLater, ...binding }, context);
  const retryable = ask.state === "pending" || (ask.state === "approved" && !ask.is_used);
  return { state, ask_id: ask.id, note: ask.note, retryable };
}

function eventOf({ who, event: stored }: Held, vm: VmFacts | null): SecurityEvent {
  const event = eventFromJson(stored);
  const about = event.facts.get("vm.id") ?? null;
  if (
    event.identity.event_id === who.event_id &&
    about === (vm?.id ?? null) &&
    event.type.startsWith("mcp.")
  ) {
    return event;
  }
  throw new Failure("invalid_input", "Cannot ask: the event is of another act");
}

/** Of arguments that an event cannot hold, an approval for one must not serve others that begin alike. */
function cutOf(event: SecurityEvent) {
  if (event.facts.get("mcp.truncated") !== true) return {};
  return {
    bound: () => ({ call: event.identity.event_id }),
    onlyOnce: () => "its arguments are too long to be shown whole",
  };
}

/** The rules are others by now: what is tried again is judged by them. */
function changedMeanwhile({ action }: Decision): HeldEnd {
  return action === "block"
    ? { state: "denied", ask_id: "", note: "the rules have changed, and block it", retryable: false }
    : { state: "cancelled", ask_id: "", note: "the rules have changed; try again", retryable: true };
}

function principalOf(requester: string): Principal {
  if (requester === GUEST) return { kind: "guest", name: GUEST };
  if (requester === "gateway") return { kind: "gateway", name: "gateway" };
  if (requester.startsWith("user ")) return { kind: "user", name: requester.slice("user ".length) };
  throw apiFailure("invalid_input", "Cannot ask: nobody is named so");
}
