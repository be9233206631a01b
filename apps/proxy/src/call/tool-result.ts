import { withMember } from "@capsem/mcp-protocol";
import { isCovered, join, type Label, labelFields } from "@capsem/policy";
import { METHODS_OF } from "../catalog/views.ts";
import { isAnswered } from "../judge/answered.ts";
import { resultDraft } from "../judge/events.ts";
import { type Judgement, judge } from "../judge/judge.ts";
import { errorParts, type ResultParts, readablePart, resultParts } from "../judge/result-fields.ts";
import { PROXY_LIMITS } from "../limits.ts";
import { type CallParts, timeLeftMs } from "./call-parts.ts";
import type { Answer, Caller } from "./caller.ts";
import type { Exchange } from "./exchange.ts";
import { blocked, notApproved, unjudgeable } from "./refusal.ts";
import type { ToolCall } from "./tool-call.ts";

/** Judges what came back of a call, and gives it as it is or not at all. Ends the call's record where it is given. */
export async function giveResult(
  parts: CallParts,
  { caller, signal }: Pick<Exchange, "caller" | "signal">,
  call: ToolCall,
  answer: Answer,
): Promise<Answer> {
  const { recorder, taints, policy, links } = parts;
  const { snapshot } = policy;
  const readsStructured = snapshot.reads("mcp.response.structured");
  const result =
    answer.kind === "error"
      ? errorParts(answer.text)
      : resultParts(readsStructured ? answer.text : readablePart(answer), readsStructured);
  const out = labelOut(parts, call, caller.asker.label);
  const judgement = judgeResult(parts, caller, call, result, out);
  call.record.answered(answer, out, result.isWhole && !judgement.isCut);
  recorder.noted(judgement, Math.min(answer.bytes?.length ?? answer.text.length, PROXY_LIMITS.eventCharsMax));
  await checkResult(parts, timeLeftMs(caller, parts), signal, call, judgement);
  call.record.given(answer, result.isError);
  taints.add(caller.taintKey, out);
  links.note(call.server.name, result.links);
  call.record.end(answer.kind === "error" ? "failed" : "done", answer.kind === "error" ? answer.text : null);
  return asRead(caller, answer, result);
}

function judgeResult(
  { policy, recorder }: CallParts,
  caller: Caller,
  { draft }: ToolCall,
  result: ResultParts,
  out: Label,
): Judgement {
  const { snapshot } = policy;
  const fields = { ...labelFields(out), ...result.fields };
  const made = resultDraft(draft, METHODS_OF.tools.use, fields, snapshot.reads("mcp.request.arguments"));
  return judge(snapshot, made.type, recorder.who(caller.asker.person), made.fields);
}

/** Returns where it may be given. The call was done, whatever becomes of what it gave. */
async function checkResult(
  parts: CallParts,
  timeoutMs: number,
  signal: AbortSignal,
  call: ToolCall,
  judgement: Judgement,
): Promise<void> {
  const { decision, event, snapshot } = judgement;
  const withheld = `its result is withheld by ${decision.rule_id}`;
  const what = `give what ${JSON.stringify(call.tool)} answered, which has run`;
  if (decision.action === "block") {
    call.record.end("done", withheld);
    throw event === null ? unjudgeable(what, decision) : blocked(what, decision);
  }
  if (decision.action === "allow" || isAnswered(snapshot, decision, call.judgement.decision)) return;
  const end = await parts.recorder.ask(judgement, what, timeoutMs, signal);
  if (end.state === "approved") return;
  call.record.end("done", withheld);
  throw notApproved(what, decision, end);
}

/** What flowed in, and where it comes from: outside is not trusted. */
function labelOut({ taints }: CallParts, { server, item }: ToolCall, label_in: Label): Label {
  if (!server.isExternal && item?.isOpenWorld === false) return label_in;
  const own = taints.ofSource(server.name);
  return isCovered(own, label_in) ? label_in : join(label_in, own);
}

/** A client of the newer protocol needs a word that servers of the older one do not say. */
function asRead(caller: Caller, answer: Answer, { resultType }: ResultParts): Answer {
  if (caller.era === "legacy" || answer.kind === "error" || resultType !== undefined) return answer;
  return { kind: answer.kind, text: withMember(answer.text, "resultType", '"complete"') };
}
