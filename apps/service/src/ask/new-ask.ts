import { newId } from "@capsem/base";
import { LABEL_PATHS, reasonGiven } from "@capsem/policy";
import type { Asked, Redactor } from "../boundary/parts.ts";
import { visibleLine } from "../log/visible.ts";
import type { AskRecord } from "./ask-record.ts";
import type { AskedEvent } from "./ask-row.ts";
import { ASK_LIMITS } from "./limits.ts";

export interface NewAskParts {
  readonly redactor: Redactor;
  readonly nowMs: () => number;
  readonly random: (bytes: number) => Uint8Array;
}

/** The ask that stands for an act until somebody has decided, secrets replaced: it is stored and shown as it is. */
export function newAsk(parts: NewAskParts, asked: Asked, { who }: AskedEvent, waitMs: number): AskRecord {
  const { redactor, nowMs, random } = parts;
  const { decision, vm } = asked;
  const createdMs = nowMs();
  const shown = (text: string, charactersMax: number) => visibleLine(redactor.text(text).text, charactersMax);
  return {
    version: 1,
    ask: {
      id: newId("ask", random),
      state: "pending",
      vm_id: vm?.id ?? null,
      vm_name: vm?.name ?? null,
      type: asked.event.type,
      title: shown(asked.title, ASK_LIMITS.titleCharactersMax),
      rule_id: decision.rule_id,
      reason: shown(reasonGiven(decision), ASK_LIMITS.reasonCharactersMax),
      requester: who.requester,
      client: who.client,
      trace_id: who.trace_id,
      digest: asked.digest,
      created_at: new Date(createdMs).toISOString(),
      expires_at: new Date(createdMs + waitMs).toISOString(),
      is_used: false,
      scope: null,
      resolver: null,
      note: null,
      resolved_at: null,
      event_id: who.event_id,
    },
    turn_id: who.turn_id,
    token_id: who.token_id,
    always: {
      event: { ...redactor.json(asked.event.toJSON()).value },
      decision: { ...decision, explanation: { matched: [...decision.explanation.matched] } },
      bound: [...asked.bound],
      labels: [...(asked.labels ?? LABEL_PATHS)],
    },
    only_once: asked.onlyOnce,
    is_recorded: true,
  };
}
