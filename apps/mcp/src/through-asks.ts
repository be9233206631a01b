import type { AskInfo } from "@capsem/api";
import { CapsemError } from "@capsem/sdk";
import { because, choiceIn, questionOf, type Resolution } from "./ask-form.ts";
import { attempt, type Caller, type CallParts, type ParsedCall } from "./attempt.ts";
import type { Answer, AskRef, Conversation } from "./conversation.ts";
import { failureOf } from "./failure-of.ts";
import { ASK_ROUNDS_MAX } from "./limits.ts";
import type { CallToolResult, InputRequiredResult } from "./mcp-sdk.ts";
import { type ServiceAsks, serviceAsks } from "./service-asks.ts";
import { type FailureObject, ToolFailure } from "./tool-failure.ts";

/**
 * A call that a rule may ask about. Where its client can ask its user, each ask becomes a form, and the same call is sent
 * again once that was approved; elsewhere the service holds the call. The person's time is nobody's: neither a deadline
 * nor a place among the calls under way runs meanwhile.
 */
export async function throughAsks(
  call: ParsedCall,
  conversation: Conversation,
  cancel: AbortSignal,
  parts: CallParts,
): Promise<CallToolResult | InputRequiredResult> {
  const { clientName, ask, hasTitles } = conversation;
  const caller: Caller = { clientName, asksLater: ask !== null, cancel };
  const asks = serviceAsks(parts, caller);
  let { answer } = conversation;
  for (let round = 0; ; round += 1) {
    if (answer !== null) await settle(call.name, answer, asks);
    const held = await attemptOrAsk(call, caller, parts, asks);
    if (held.kind === "result") return held.result;
    if (ask === null || held.ask === null || round >= ASK_ROUNDS_MAX) throw held.failure;
    const form = { hasTitles, nowMs: Date.now() };
    const reply = await ask(questionOf(call.name, held.ask, call.args.vm_id, form));
    if (reply.kind === "suspended") return reply.result;
    if (reply.kind === "unanswered") throw reply.isLate ? late(call.name, refOf(held.ask)) : held.failure;
    answer = reply;
  }
}

type Attempt =
  | { readonly kind: "result"; readonly result: CallToolResult }
  /** `ask` is what a person can still be asked; the failure says what to do where that is not possible here. */
  | { readonly kind: "refused"; readonly ask: AskInfo | null; readonly failure: ToolFailure };

async function attemptOrAsk(
  call: ParsedCall,
  caller: Caller,
  parts: CallParts,
  asks: ServiceAsks,
): Promise<Attempt> {
  try {
    return { kind: "result", result: await attempt(call, caller, parts) };
  } catch (thrown) {
    if (!(thrown instanceof ToolFailure)) throw thrown;
    const { kind, ask_id: id, retryable } = thrown.object;
    if (kind !== "policy" || id === undefined) throw thrown;
    if (!retryable) throw (await asks.find(id, "expired")) === null ? thrown : withAdvice(thrown, NEXT_TIME);
    const found = await asks.find(id, "pending");
    // The work is done, and to send it again would do it twice: its result is lost.
    if (found?.type === RESULT_TYPE) throw new ToolFailure({ ...thrown.object, retryable: false }, thrown);
    return { kind: "refused", ask: found, failure: withAdvice(thrown, approveLine(id)) };
  }
}

/** What a command wrote, judged when it has run. */
const RESULT_TYPE = "process.exec_complete";
const NEXT_TIME =
  "ask the user to run: capsem asks watch, which shows the next one as it comes, then call again";

function approveLine(id: string): string {
  return `ask the user to run: capsem asks approve ${id}, then make the same call again, which goes on`;
}

function withAdvice({ object }: ToolFailure, advice: string): ToolFailure {
  return new ToolFailure({ ...object, reason: `${object.reason}; ${advice}` });
}

/** Returns where the person's approval is in force. */
async function settle(tool: string, answer: Answer, asks: ServiceAsks): Promise<void> {
  const { ask } = answer;
  if (Date.now() >= ask.untilMs) throw late(tool, ask);
  const choice = choiceIn(answer);
  if (choice.kind === "closed" || choice.kind === "none") return undecided(tool, answer, asks);
  try {
    await asks.resolve(ask.id, choice);
  } catch (thrown) {
    if (choice.kind === "deny") throw denied(tool, ask, choice, "; the service could not be told");
    const failure = unsettled(ask, thrown);
    if (!(thrown instanceof CapsemError) || thrown.kind !== "wrong_state") throw failure;
    // Somebody else was first: by an approval that no call has used, this one goes on all the same.
    if (await isApproved(ask, asks)) return;
    throw refused(ask, { reason: failure.object.reason, retryable: false });
  }
  if (choice.kind === "deny") throw denied(tool, ask, choice, "");
}

/** Nobody has decided here: the ask waits on, and whoever comes to it elsewhere may approve it, or has. */
async function undecided(tool: string, { ask, action }: Answer, asks: ServiceAsks): Promise<void> {
  if (await isApproved(ask, asks)) return;
  const waiting = await asks.find(ask.id, "pending");
  const what =
    action === "cancel"
      ? "the form was closed without an answer"
      : "the client's answer has none of the choices";
  const why = waiting === null ? "" : ` (${because(waiting)})`;
  const reason = `Cannot finish ${tool}: ${what}${why}; ${approveLine(ask.id)}`;
  throw refused(ask, { reason, retryable: true });
}

async function isApproved({ id }: AskRef, asks: ServiceAsks): Promise<boolean> {
  const found = await asks.find(id, "approved");
  return found !== null && !found.is_used;
}

function refOf({ id, rule_id: ruleId }: AskInfo): Pick<AskRef, "id" | "ruleId"> {
  return { id, ruleId };
}

function late(tool: string, ask: Pick<AskRef, "id" | "ruleId">): ToolFailure {
  return refused(ask, {
    reason: `Cannot finish ${tool}: nobody answered ask ${ask.id} in time`,
    retryable: false,
  });
}

type Denial = Extract<Resolution, { kind: "deny" }>;

function denied(tool: string, ask: AskRef, { note }: Denial, more: string): ToolFailure {
  const why = note === "" ? "" : ` (${note})`;
  return refused(ask, {
    reason: `Cannot finish ${tool}: the user refused it${why}${more}`,
    retryable: false,
  });
}

function refused(
  { id, ruleId }: Pick<AskRef, "id" | "ruleId">,
  words: Pick<FailureObject, "reason" | "retryable">,
): ToolFailure {
  return new ToolFailure({
    kind: "policy",
    reason: words.reason,
    status: 403,
    code: "policy",
    rule_id: ruleId,
    ask_id: id,
    retryable: words.retryable,
  });
}

/** The approval is what failed: the call itself was not sent. */
function unsettled(ask: AskRef, thrown: unknown): ToolFailure {
  const call = { tool: `the approval of ask ${ask.id}`, mutates: true, isJob: false, timeoutMs: 0 };
  const failure = failureOf({ ...call, endedBy: null }, thrown);
  const isAway = failure.kind === "network" || failure.kind === "timeout";
  return new ToolFailure(
    {
      ...failure,
      ...{ rule_id: ask.ruleId, ask_id: ask.id },
      reason: `${failure.reason}. The call itself was not carried out`,
      retryable: failure.retryable || isAway,
    },
    thrown,
  );
}
