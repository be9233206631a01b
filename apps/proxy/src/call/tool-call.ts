import { Failure, messageOf } from "@capsem/base";
import { headersProblem, paramHeaders, splitName } from "@capsem/mcp-protocol";
import type { Decision } from "@capsem/policy";
import type { Catalog, ToolItem } from "../catalog/catalog.ts";
import type { DeclaredServer } from "../catalog/server-book.ts";
import { METHODS_OF } from "../catalog/views.ts";
import { type Draft, requestDraft } from "../judge/events.ts";
import { type Judgement, judge } from "../judge/judge.ts";
import { PROXY_LIMITS } from "../limits.ts";
import { type CallParts, placeFor, roomFor, timeLeftMs, waitFor } from "./call-parts.ts";
import { CallRecord, callIdOf } from "./call-record.ts";
import type { Answer, Caller } from "./caller.ts";
import { Exchange } from "./exchange.ts";
import { boundText, isHeldState } from "./held-calls.ts";
import { throughRounds } from "./input-rounds.ts";
import { callText, nameText, objectParam, type Params, textParam, withLogLevel } from "./params.ts";
import { blocked, notApproved, unjudgeable } from "./refusal.ts";
import { Run } from "./run.ts";
import { Side } from "./side-judge.ts";
import { giveResult } from "./tool-result.ts";

const METHOD = METHODS_OF.tools.use;
const TOTAL_MS = PROXY_LIMITS.callTimeoutMs;

/** What a name stands for, as far as can be known. */
interface Found {
  readonly server: Pick<DeclaredServer, "name" | "isExternal" | "timeoutMs">;
  readonly tool: string;
  readonly item: ToolItem | undefined;
  readonly catalog: Catalog | undefined;
  /** Why it cannot be called, whatever the rules say. */
  readonly fault: Failure | undefined;
}

/** One call, once it is judged. */
export interface ToolCall extends Found {
  readonly isPinned: boolean;
  readonly draft: Draft;
  readonly judgement: Judgement;
  readonly record: CallRecord;
}

export interface CallDone {
  readonly answer: Answer;
  /** Null of a later leg. */
  readonly eventId: string | null;
}

/** Calls of tools: the one way to each of them, whoever calls. */
export class ToolCalls {
  readonly #parts: CallParts;

  constructor(parts: CallParts) {
    this.#parts = parts;
  }

  /** Throws Failure, "policy" where a rule or a person refuses. */
  async call(caller: Caller, params: Params): Promise<CallDone> {
    const name = textParam(params, "name");
    const args = objectParam(params, "arguments") ?? {};
    const { requestState } = params;
    const known = this.#peek(name);
    if (isHeldState(requestState)) {
      if (known !== undefined) this.#checkHeaders(caller, known, JSON.stringify(args));
      return this.#goOn(caller, params, requestState);
    }
    const found = known ?? (await this.#find(name, caller));
    const argumentsText = JSON.stringify(args);
    const room = roomFor(argumentsText, caller, this.#parts);
    if (room !== undefined) await room;
    const call = this.#judged(caller, found, args, argumentsText);
    // What is refused or asked for is known at once.
    const isEarly = call.judgement.decision.action === "allow" && this.#parts.slots.areTaken;
    call.record.intent(room !== undefined, isEarly);
    try {
      await this.#admit(caller, call);
      const answer = await this.#dispatch(caller, call, params);
      return { answer, eventId: call.record.eventId };
    } catch (thrown) {
      // Only the first end counts.
      call.record.failed(thrown);
      throw thrown;
    }
  }

  /** A leg of a call that asked for input: the call is judged and recorded already. */
  async #goOn(caller: Caller, params: Params, state: string): Promise<CallDone> {
    const given = objectParam(params, "inputResponses") ?? {};
    const { taintKey } = caller;
    const run = this.#parts.held.take(state, { taintKey, method: METHOD, paramsText: boundText(params) });
    const responses = new Map(Object.entries(given).map(([key, value]) => [key, JSON.stringify(value)]));
    return { answer: await run.leg(caller, responses), eventId: null };
  }

  /** Where its catalogue is known already, which is nearly always. */
  #peek(name: string): Found | undefined {
    const split = splitName(name);
    const server = split === null ? undefined : this.#parts.book.get(split.server);
    if (split === null || server === undefined) return this.#unknownServer(name);
    const catalog = this.#parts.catalogs.current(server.name);
    return catalog === undefined ? undefined : foundIn(catalog, server, name, split.name);
  }

  async #find(name: string, caller: Caller): Promise<Found> {
    const split = splitName(name);
    const server = split === null ? undefined : this.#parts.book.get(split.server);
    if (split === null || server === undefined) return this.#unknownServer(name);
    try {
      const catalog = await waitFor(this.#parts.catalogs.get(server.name), caller, this.#parts);
      return foundIn(catalog, server, name, split.name);
    } catch (thrown) {
      const text = `Cannot call "${name}": ${messageOf(thrown)}`;
      const fault = thrown instanceof Failure ? thrown : new Failure("internal", text, { cause: thrown });
      return { server, tool: split.name, item: undefined, catalog: undefined, fault };
    }
  }

  #unknownServer(name: string): Found {
    const split = splitName(name);
    const server = { name: split?.server ?? "", isExternal: true, timeoutMs: undefined };
    const fault = this.#parts.book.missing(server.name, "tool", name);
    return { server, tool: split?.name ?? name, item: undefined, catalog: undefined, fault };
  }

  #judged(caller: Caller, found: Found, args: Params, argumentsText: string): ToolCall {
    const { vm, policy, views, recorder } = this.#parts;
    const { server, tool, item, catalog } = found;
    const isPinned = item !== undefined && views.isPinned(server, tool);
    // What is nowhere is not called, and has no definition that could be another one.
    const isApproved = item === undefined ? !views.isQuarantined(server, tool) : isPinned;
    const subject = { server, target: { kind: "tool", name: tool, isPinned: isApproved } } as const;
    const asked = { method: METHOD, arguments: args };
    const draft = requestDraft(vm, caller.asker, asked, subject);
    if (caller.requestId !== null) draft.fields["mcp.request.id"] = caller.requestId;
    const who = recorder.who(caller.asker.person);
    draft.fields["mcp.tool_call.id"] = callIdOf(who);
    let judgement = judge(policy.snapshot, draft.type, who, draft.fields);
    if (judgement.decision.action !== "block" && catalog !== undefined) {
      // What is not listed is not called.
      const closed = views.closedBy(server, catalog, "tools", caller.asker);
      if (closed !== undefined) judgement = { ...judgement, decision: asBlock(closed) };
    }
    const called = { server, tool, isPinned };
    const record = new CallRecord(this.#parts, caller, called, judgement, argumentsText);
    const { fault } = found;
    // One by one: this is on the way of each call, and a spread is slow there.
    return { server, tool, item, catalog, fault, isPinned, draft, judgement, record };
  }

  /** Returns where it may be done. */
  async #admit(caller: Caller, call: ToolCall): Promise<void> {
    const { fault, judgement, record } = call;
    const { decision, event } = judgement;
    const what = describe(call);
    if (decision.action === "block") {
      record.end("blocked");
      throw event === null ? unjudgeable(what, decision) : blocked(what, decision);
    }
    if (fault !== undefined) throw fault;
    this.#checkHeaders(caller, call, record.argumentsText);
    if (decision.action === "ask") {
      const { recorder } = this.#parts;
      const end = await recorder.ask(judgement, what, timeLeftMs(caller, this.#parts), caller.signal);
      if (end.state !== "approved") {
        record.end(end.state === "pending" ? "asked" : end.state);
        throw notApproved(what, decision, end);
      }
    }
    if (caller.signal.aborted) throw caller.signal.reason;
  }

  /** Whoever is on the way may have gone by the headers. Behind the decision: a tool that is hidden has none. */
  #checkHeaders(caller: Caller, { server, tool, item }: Found, argumentsText: string): void {
    const { paramHeaders: sent } = caller;
    if (sent === undefined || item === undefined) return;
    const declared = paramHeaders(this.#parts.views.definitionOf(server, item));
    if (declared === null || declared.length === 0) return;
    const problem = headersProblem(declared, JSON.parse(argumentsText), sent);
    if (problem === null) return;
    throw new Failure("header_mismatch", `Cannot call ${JSON.stringify(tool)}: ${problem}`);
  }

  async #dispatch(caller: Caller, call: ToolCall, params: Params): Promise<Answer> {
    const { slots, recorder, held } = this.#parts;
    const release = slots.takeNow() ?? (await placeFor(caller, this.#parts));
    const { server, tool, item, catalog, record } = call;
    const idleMs = Math.min(item?.timeoutMs ?? TOTAL_MS, server.timeoutMs ?? TOTAL_MS, TOTAL_MS);
    const side = new Side(this.#parts, recorder, server, {
      asker: () => exchange.caller.asker,
      timeLeftMs: () => timeLeftMs(caller, this.#parts),
    });
    const { deadlineMs } = caller;
    const exchange: Exchange = new Exchange(caller, {
      parts: this.#parts,
      server,
      method: METHOD,
      what: describe(call),
      idleMs,
      deadlineMs,
      side,
    });
    record.start();
    const isOlder = caller.era === "legacy" && catalog?.era === "modern";
    const rounds = () => {
      const paramsText = callText(params, tool, record.argumentsText);
      return throughRounds(exchange, withLogLevel(paramsText, caller.logLevel));
    };
    const work = async () => {
      try {
        const sent = record.intentSent(exchange.signal);
        if (sent !== undefined) await sent;
        const answer = await (isOlder ? rounds() : sendCall(exchange, params, tool, record));
        return await giveResult(this.#parts, exchange, call, answer);
      } catch (thrown) {
        record.failed(thrown);
        throw thrown;
      } finally {
        release();
      }
    };
    const binding = () => ({ taintKey: caller.taintKey, method: METHOD, paramsText: boundText(params) });
    return new Run({ exchange, work, held, onHeld: release, binding }).leg(caller);
  }
}

function sendCall(exchange: Exchange, params: Params, tool: string, record: CallRecord): Promise<Answer> {
  const { argumentsText, argumentsBytes } = record;
  if (argumentsBytes === undefined) return exchange.run(callText(params, tool, argumentsText));
  return exchange.run(nameText(params, tool), argumentsBytes);
}

function describe({ server, tool }: Pick<Found, "server" | "tool">): string {
  return `call ${JSON.stringify(tool)}${server.name === "" ? "" : ` of ${server.name}`}`;
}

/** By the name that is listed, or in full. */
function foundIn(catalog: Catalog, server: DeclaredServer, name: string, inFull: string): Found {
  const listed = catalog.listed.tools.get(name);
  const item = catalog.tools.get(listed?.key ?? inFull);
  if (item !== undefined) return { server, tool: item.key, item, catalog, fault: undefined };
  const fault = new Failure(
    "not_found",
    `Cannot find tool ${JSON.stringify(name)}: ${server.name} has none of it`,
  );
  return { server, tool: inFull, item, catalog, fault };
}

/** A list that waits for a person is closed until then. */
function asBlock(decision: Decision): Decision {
  return { ...decision, action: "block" };
}
