import { Failure } from "@capsem/base";
import { timeoutOf, withMember } from "@capsem/mcp-protocol";
import { isCovered, join, type Label, labelFields } from "@capsem/policy";
import type { Catalog, ItemKind } from "../catalog/catalog.ts";
import type { DeclaredServer } from "../catalog/server-book.ts";
import { METHODS_OF } from "../catalog/views.ts";
import { isAnswered } from "../judge/answered.ts";
import { type Draft, requestDraft, resultDraft } from "../judge/events.ts";
import { type Judgement, judge } from "../judge/judge.ts";
import { errorParts, readablePart, resultParts } from "../judge/result-fields.ts";
import { PROXY_LIMITS } from "../limits.ts";
import { type CallParts, placeFor, roomFor, timeLeftMs } from "./call-parts.ts";
import type { Answer, Caller } from "./caller.ts";
import { Exchange } from "./exchange.ts";
import { boundText, isHeldState } from "./held-calls.ts";
import { throughRounds } from "./input-rounds.ts";
import { forwardText, objectParam, type Params, withLogLevel } from "./params.ts";
import { blocked, notApproved, unjudgeable } from "./refusal.ts";
import { Run } from "./run.ts";
import { Side } from "./side-judge.ts";

/** The one thing that a request is about. */
export interface PlainTarget {
  readonly server: DeclaredServer;
  readonly catalog: Catalog;
  readonly kind: Exclude<ItemKind, "tools">;
  /** As its server spells it. */
  readonly key: string;
  /** What of the parameters names it there. */
  readonly own: Params;
  /** What rules read as arguments, where the request has such. */
  readonly arguments?: Readonly<Record<string, unknown>>;
}

const OTHER_TIMEOUT_MS = PROXY_LIMITS.otherTimeoutMs;

interface PlainCall extends PlainTarget {
  readonly method: string;
  readonly draft: Draft;
  readonly judgement: Judgement;
}

/** Everything that goes to one server and is no call of a tool: an `mcp.event` each way. */
export class PlainCalls {
  readonly #parts: CallParts;

  constructor(parts: CallParts) {
    this.#parts = parts;
  }

  /** Throws Failure, "policy" where a rule or a person refuses. */
  async call(caller: Caller, method: string, params: Params, target: PlainTarget): Promise<Answer> {
    const { requestState } = params;
    if (isHeldState(requestState)) {
      const binding = { taintKey: caller.taintKey, method, paramsText: boundText(params) };
      const given = Object.entries(objectParam(params, "inputResponses") ?? {});
      const responses = new Map(given.map(([key, value]) => [key, JSON.stringify(value)]));
      return this.#parts.held.take(requestState, binding).leg(caller, responses);
    }
    const text = forwardText(params, target.own);
    const room = roomFor(text, caller, this.#parts);
    if (room !== undefined) await room;
    const call = this.#judged(caller, method, target);
    const place = this.#parts.recorder.intent(call.judgement, text.length, room !== undefined);
    await this.#admit(caller, caller.signal, call, call.judgement, describe(call));
    return this.#dispatch(caller, call, place, params, text);
  }

  #judged(caller: Caller, method: string, target: PlainTarget): PlainCall {
    const { vm, policy, views, recorder } = this.#parts;
    const { server, catalog, kind, key } = target;
    const asked = { method, ...(target.arguments === undefined ? {} : { arguments: target.arguments }) };
    const draft = requestDraft(vm, caller.asker, asked, {
      server,
      target: views.targetOf(server, kind, key),
    });
    if (caller.requestId !== null) draft.fields["mcp.request.id"] = caller.requestId;
    const judgement = judge(policy.snapshot, draft.type, recorder.who(caller.asker.person), draft.fields);
    const call = { ...target, method, draft };
    if (judgement.decision.action === "block") return { ...call, judgement };
    // What is not listed is not found in any other way.
    const hidden =
      views.closedBy(server, catalog, kind, caller.asker) ?? this.#hiddenBy(caller, method, target);
    if (hidden === undefined) return { ...call, judgement };
    return { ...call, judgement: { ...judgement, decision: { ...hidden, action: "block" } } };
  }

  #hiddenBy(caller: Caller, method: string, { server, kind, key }: PlainTarget) {
    // The use itself was judged with all that it has.
    if (method === METHODS_OF[kind].use) return undefined;
    return this.#parts.views.hiddenBy(server, kind, key, caller.asker);
  }

  async #admit(
    caller: Caller,
    signal: AbortSignal,
    call: PlainCall,
    judgement: Judgement,
    what: string,
  ): Promise<void> {
    const { decision, event } = judgement;
    if (decision.action === "block")
      throw event === null ? unjudgeable(what, decision) : blocked(what, decision);
    const isResult = judgement !== call.judgement;
    if (decision.action === "allow") return;
    if (isResult && isAnswered(judgement.snapshot, decision, call.judgement.decision)) return;
    const end = await this.#parts.recorder.ask(judgement, what, timeLeftMs(caller, this.#parts), signal);
    if (end.state !== "approved") throw notApproved(what, decision, end);
  }

  async #dispatch(
    caller: Caller,
    call: PlainCall,
    place: number,
    params: Params,
    paramsText: string,
  ): Promise<Answer> {
    const { slots, recorder, held } = this.#parts;
    const release = slots.takeNow() ?? (await placeFor(caller, this.#parts));
    const { server, method, catalog } = call;
    const side = new Side(this.#parts, recorder, server, {
      asker: () => exchange.caller.asker,
      timeLeftMs: () => timeLeftMs(caller, this.#parts),
    });
    const idleMs = Math.min(server.timeoutMs ?? OTHER_TIMEOUT_MS, timeoutOf(method) ?? OTHER_TIMEOUT_MS);
    const deadlineMs = Math.min(caller.deadlineMs, this.#parts.clock.monotonicMs() + OTHER_TIMEOUT_MS);
    const exchange: Exchange = new Exchange(caller, {
      ...{ parts: this.#parts, server, method, what: describe(call), idleMs, deadlineMs, side },
    });
    const isOlder = caller.era === "legacy" && catalog.era === "modern";
    const work = async () => {
      try {
        const sent = recorder.sent(place, exchange.signal);
        if (sent !== undefined) await sent;
        const answer = await (isOlder
          ? throughRounds(exchange, withLogLevel(paramsText, caller.logLevel))
          : exchange.run(paramsText));
        return await this.#give(exchange, call, answer);
      } finally {
        release();
      }
    };
    const binding = () => ({ taintKey: caller.taintKey, method, paramsText: boundText(params) });
    return new Run({ exchange, work, held, onHeld: release, binding }).leg(caller);
  }

  async #give({ caller, signal }: Exchange, call: PlainCall, answer: Answer): Promise<Answer> {
    const { policy, recorder, taints } = this.#parts;
    const { snapshot } = policy;
    const isError = answer.kind === "error";
    const readsStructured = snapshot.reads("mcp.response.structured");
    const result = isError
      ? errorParts(answer.text)
      : resultParts(readsStructured ? answer.text : readablePart(answer), readsStructured);
    const out = this.#labelOut(call, caller.asker.label);
    const fields = { ...labelFields(out), ...result.fields };
    const { type, fields: made } = resultDraft(
      call.draft,
      call.method,
      fields,
      snapshot.reads("mcp.request.arguments"),
    );
    const judgement = judge(snapshot, type, recorder.who(caller.asker.person), made);
    recorder.noted(
      judgement,
      Math.min(answer.bytes?.length ?? answer.text.length, PROXY_LIMITS.eventCharsMax),
    );
    await this.#admit(caller, signal, call, judgement, `give what ${call.server.name} answered`);
    taints.add(caller.taintKey, out);
    if (isError || caller.era === "legacy") return answer;
    let { text } = answer;
    if (result.resultType === undefined) text = withMember(text, "resultType", '"complete"');
    if (call.method === METHODS_OF.resources.use && !result.hasCacheHint) text = uncached(text);
    return { kind: "result", text };
  }

  #labelOut({ server }: PlainCall, label_in: Label): Label {
    if (!server.isExternal) return label_in;
    const own = this.#parts.taints.ofSource(server.name);
    return isCovered(own, label_in) ? label_in : join(label_in, own);
  }
}

/** Of a server that says nothing of it: ask again each time. */
export function uncached(text: string): string {
  return withMember(withMember(text, "ttlMs", "0"), "cacheScope", '"private"');
}

function describe({ method, server, key }: PlainCall): string {
  return `do ${method} of ${JSON.stringify(key)} at ${server.name}`;
}

/** Where nothing of that name is known. */
export function notFound(what: string, name: string): Failure {
  return new Failure("not_found", `Cannot find ${what} ${JSON.stringify(name)}`);
}
