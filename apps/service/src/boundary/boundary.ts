import { apiFailure, type ErrorKind, HOST_LEDGER, toApiFailure } from "@capsem/api";
import { assert, EventIds, Failure, messageOf } from "@capsem/base";
import { boundLabels, type Decision, type DecisionAction } from "@capsem/policy";
import { type ActContext, requesterText } from "../act.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { askBinding } from "./ask-digest.ts";
import { type Judgement, judge } from "./judgement.ts";
import { RecordedAct } from "./open-act.ts";
import { RESULT_FIELDS } from "./output-rules.ts";
import type {
  ActDraft,
  AnyRow,
  AskEnd,
  Asks,
  Boundary,
  LedgerWriter,
  Permit,
  PolicySource,
  Redactor,
  ResultDraft,
} from "./parts.ts";
import { blocked, notApproved, unjudgeable } from "./refusal.ts";
import { clean, decisionRows, endRow, type Who } from "./rows.ts";

export interface BoundaryParts {
  readonly policy: PolicySource;
  readonly ledger: LedgerWriter;
  readonly redactor: Redactor;
  readonly asks: Asks;
  readonly nowMs: () => number;
  readonly monotonicMs: () => number;
  readonly random: (bytes: number) => Uint8Array;
  readonly log: ServiceLog;
  /** Of this home, and secret: what an approval is bound to gives nothing away. */
  readonly digestKey: Uint8Array;
}

export function createBoundary(parts: BoundaryParts): Boundary {
  return new ServiceBoundary(parts);
}

class ServiceBoundary implements Boundary {
  readonly #parts: BoundaryParts;
  readonly #ids: EventIds;

  constructor(parts: BoundaryParts) {
    this.#parts = parts;
    this.#ids = new EventIds(parts.random);
  }

  async pass<T>(context: ActContext, draft: ActDraft, work: (permit: Permit) => Promise<T>): Promise<T> {
    const who = this.#who(context);
    const judgement = this.#judge(who, draft);
    const { decision, event } = judgement;
    const { redactor } = this.#parts;
    const ledger = await this.#recordIntent(context, draft, who, judgement);
    const act = new RecordedAct(this.#parts, ledger, who, draft.row, decision);
    if (event === null || decision.action === "block") {
      act.close("blocked");
      throw event === null ? unjudgeable(draft, decision, redactor) : blocked(draft, judgement, redactor);
    }
    if (decision.action === "ask") await this.#ask(context, draft, judgement, act);
    if (context.signal.aborted) {
      act.close("cancelled", "cancelled");
      throw apiFailure("cancelled", "Cannot do the act: its requester is gone or its time is over");
    }
    return this.#do(context, act, work, { eventId: who.event_id, decision });
  }

  async judgeResult(context: ActContext, draft: ResultDraft, of: Decision): Promise<void> {
    const who = this.#who(context);
    const judgement = this.#judge(who, draft);
    const { decision, event } = judgement;
    await this.#recordIntent(context, draft, who, judgement);
    if (event === null || decision.action === "block") throw blocked(draft, judgement, this.#parts.redactor);
    if (decision.action !== "ask" || this.#isAnswered(decision, of)) return;
    await this.#ask(context, draft, judgement, null);
  }

  noteResult(context: ActContext, draft: ResultDraft, of: Decision): DecisionAction {
    const who = this.#who(context);
    const judgement = this.#judge(who, draft);
    this.#takeAnyhow(draft, who, () => decisionRows(who, judgement, this.#parts.redactor));
    return this.#isAnswered(judgement.decision, of) ? "allow" : judgement.decision.action;
  }

  /**
   * Whoever allowed the act has answered a rule that asks about nothing but the act: a person whom it asked, or a rule
   * that comes before it and let the act pass, as an approval for always does.
   */
  #isAnswered(decision: Decision, of: Decision): boolean {
    if (decision.action !== "ask") return false;
    const hasAsked = of.action === "ask" && decision.rule_id === of.rule_id;
    const isPreceded =
      of.action === "allow" && of.explanation.matched.some(({ rule_id }) => rule_id === decision.rule_id);
    if (!hasAsked && !isPreceded) return false;
    const rule = this.#parts.policy.snapshot().rules.find(({ id }) => id === decision.rule_id);
    if (rule === undefined) return false;
    const { values, presence } = rule.reads;
    return !RESULT_FIELDS.some((path) => values.has(path) || presence.has(path));
  }

  note(draft: ActDraft, outcome: "done" | "failed"): void {
    const { redactor } = this.#parts;
    const who = this.#who(null);
    const judgement = this.#judge(who, draft);
    this.#takeAnyhow(draft, who, () => [
      ...decisionRows(who, judgement, redactor),
      endRow(who, draft.row, {}, judgement.decision, { outcome, error: null, durationMs: null }, redactor),
    ]);
  }

  /** Does it, and ends its row however that goes. */
  async #do<T>(
    context: ActContext,
    act: RecordedAct,
    work: (permit: Permit) => Promise<T>,
    facts: Pick<Permit, "eventId" | "decision">,
  ): Promise<T> {
    const permit: Permit = {
      ...facts,
      add: (more) => act.add(more as Parameters<RecordedAct["add"]>[0]),
      keep() {
        act.isKept = true;
        return act;
      },
    };
    act.start();
    try {
      const value = await work(permit);
      if (!act.isKept) act.close("done");
      return value;
    } catch (thrown) {
      const { kind, message } = toApiFailure(thrown);
      act.close(context.signal.aborted || kind === "cancelled" ? "cancelled" : "failed", kind, message);
      throw thrown;
    }
  }

  /** Returns where a person, now or before, has approved it. */
  async #ask(
    context: ActContext,
    draft: ResultDraft & Pick<ActDraft, "isNew" | "onlyOnce">,
    { event, decision }: Judgement,
    act: RecordedAct | null,
  ): Promise<void> {
    const { asks, digestKey, policy, redactor } = this.#parts;
    assert(event !== null, "only what could be judged is asked about");
    let end: AskEnd;
    try {
      // What has been done is not done again: its result is held whatever the client would rather have.
      const isLater = context.asks === "later" && act !== null;
      const { title, vm } = draft;
      const labels = boundLabels(policy.snapshot(), event, decision);
      const binding = await askBinding(digestKey, event, draft, labels);
      const asked = { event, decision, title, vm, isLater, ...binding };
      end = await asks.hold(asked, context);
    } catch (thrown) {
      const { kind } = toApiFailure(thrown);
      act?.close(context.signal.aborted ? "cancelled" : "failed", kind);
      throw thrown;
    }
    if (end.state === "approved") return;
    act?.close(end.state === "pending" ? "asked" : end.state);
    throw notApproved(draft, decision, end, redactor);
  }

  /** Taken before anything is done, or nothing is. Answers whose ledger has it; null where none can. */
  async #recordIntent(
    context: ActContext,
    draft: ResultDraft & Pick<ActDraft, "isNew" | "needsNoRoom">,
    who: Who,
    judgement: Judgement,
  ): Promise<string | null> {
    const { ledger, redactor } = this.#parts;
    const rows = decisionRows(who, judgement, redactor);
    // A VM that never is has no ledger either.
    const isNever = draft.isNew === true && judgement.decision.action === "block";
    const own = isNever ? HOST_LEDGER : ledgerOf(draft);
    try {
      await ledger.ready(own, context.signal);
      ledger.appendAll(own, rows);
      return own;
    } catch (thrown) {
      if (judgement.event === null) return null;
      if (draft.needsNoRoom !== true || !isItsOwn(thrown)) throw thrown;
      return this.#takeElsewhere(own, rows, who, thrown);
    }
  }

  /** What frees room is never held up by there being none. */
  #takeElsewhere(own: string, rows: readonly AnyRow[], who: Who, why: unknown): string | null {
    for (const ledger of [own, HOST_LEDGER]) {
      try {
        this.#parts.ledger.appendAll(ledger, rows);
        return ledger;
      } catch (thrown) {
        if (!isItsOwn(thrown)) throw thrown;
      }
    }
    this.#parts.log("error", "an act is in no ledger, because none has room", {
      event_id: who.event_id,
      ledger: own,
      requester: who.requester,
      cause: messageOf(why),
    });
    return null;
  }

  #takeAnyhow(draft: ResultDraft, who: Who, rowsOf: () => readonly AnyRow[]): void {
    const ledger = ledgerOf(draft);
    try {
      this.#takeElsewhere(ledger, rowsOf(), who, null);
    } catch (thrown) {
      this.#parts.log("error", "what happened is not in the ledger", {
        event_id: who.event_id,
        ledger,
        type: draft.type,
        cause: messageOf(thrown),
      });
    }
  }

  #judge(who: Who, draft: ResultDraft): Judgement {
    return judge(
      this.#parts.policy,
      {
        event_id: who.event_id,
        ...(who.trace_id === null ? {} : { trace_id: who.trace_id }),
        ...(who.turn_id === null ? {} : { turn_id: who.turn_id }),
      },
      draft,
    );
  }

  /** Null: nobody asked. What a client says of itself may hold a secret like any other text. */
  #who(context: ActContext | null): Who {
    const { nowMs, redactor } = this.#parts;
    const said = (text: string | null | undefined) => (text == null ? null : clean(text, redactor));
    return {
      event_id: this.#ids.next(),
      time_ms: nowMs(),
      trace_id: context?.traceId ?? null,
      turn_id: said(context?.turn),
      requester: context === null ? "service" : requesterText(context.requester),
      client: said(context?.client),
      token_id: context?.tokenId ?? null,
    };
  }
}

function ledgerOf({ vm }: Pick<ActDraft, "vm">): string {
  return vm === null ? HOST_LEDGER : vm.id;
}

const OWN_TROUBLE: ReadonlySet<string> = new Set<ErrorKind>(["ledger_full", "ledger_broken"]);

/** Trouble of one ledger, where another one may be well. */
function isItsOwn(thrown: unknown): boolean {
  return thrown instanceof Failure && OWN_TROUBLE.has(thrown.kind);
}
