import { HOST_LEDGER, type LedgerRow } from "@capsem/api";
import { type ActContext, requesterText } from "../act.ts";
import type { Asked, Redactor } from "../boundary/parts.ts";
import type { AskRecord } from "./ask-record.ts";

type Row = LedgerRow<"security_ask_events">;
/** One act that an ask is about, and who asked for it: a retry has another one, for the same ask. */
export interface AskedEvent {
  /** Whose ledger has it. */
  readonly ledger: string;
  readonly who: Pick<Row, "event_id" | "trace_id" | "turn_id" | "requester" | "client" | "token_id">;
}

/** What a client says of itself may hold a secret like any other text. */
export function askedEvent({ event, vm }: Asked, context: ActContext, redactor: Redactor): AskedEvent {
  const { event_id, trace_id = null, turn_id = null } = event.identity;
  const client = context.client === null ? null : redactor.text(context.client).text;
  const requester = requesterText(context.requester);
  return {
    ledger: vm?.id ?? HOST_LEDGER,
    who: { event_id, trace_id, turn_id, requester, client, token_id: context.tokenId },
  };
}

/** The act that the ask was made for. */
export function firstEvent({ ask, turn_id, token_id }: AskRecord): AskedEvent {
  const { event_id, trace_id, requester, client, vm_id } = ask;
  return {
    ledger: vm_id ?? HOST_LEDGER,
    who: { event_id, trace_id, turn_id, requester, client, token_id },
  };
}

export function askRow({ ask }: AskRecord, { who }: AskedEvent, timeMs: number): Row {
  return {
    event_id: who.event_id,
    time_ms: timeMs,
    trace_id: who.trace_id,
    turn_id: who.turn_id,
    requester: who.requester,
    client: who.client,
    token_id: who.token_id,
    ask_id: ask.id,
    state: ask.state,
    rule_id: ask.rule_id,
    digest: ask.digest,
    scope: ask.scope,
    resolver: ask.resolver,
    note: ask.note,
    deadline_ms: Date.parse(ask.expires_at),
  };
}

/** Who resolves: the user on the socket, or the gateway's client with its token's fingerprint. */
export function resolverText({ requester, client, tokenId }: ActContext): string {
  const words = [requesterText(requester)];
  if (client !== null) words.push(`client ${client}`);
  if (tokenId !== null) words.push(`token ${tokenId}`);
  return words.join(", ");
}
