import type { FactWho } from "@capsem/api";
import { Failure, messageOf, textOf, utf8 } from "@capsem/base";
import type { Decision, Label } from "@capsem/policy";
import { METHODS_OF } from "../catalog/views.ts";
import type { Judgement } from "../judge/judge.ts";
import { PROXY_LIMITS } from "../limits.ts";
import type { Clock } from "../parts.ts";
import type { CallFact, Recorder } from "../record/recorder.ts";
import type { Answer, Caller } from "./caller.ts";
import { labelText } from "./taints.ts";

type Outcome = CallFact["outcome"];
type Bodies = NonNullable<CallFact["bodies"]>;

export interface CalledTool {
  readonly server: { readonly name: string; readonly isExternal: boolean };
  readonly tool: string;
  readonly isPinned: boolean;
}

/** Of a UTF-16 unit in UTF-8. */
const UNIT_BYTES_MAX = 3;
/** The error of a call that was done, and whose tool says that it failed. */
const TOOL_ERROR = "tool_error";

/** The intent of one call and its one end, whoever comes to it first. */
export class CallRecord {
  /** A part of a payload is in no event. */
  isResponseCut = false;
  readonly #recorder: Recorder;
  readonly #clock: Clock;
  readonly #judgement: Judgement;
  readonly #call: CallFact["call"];
  /** As they are written for the server. */
  readonly argumentsText: string;
  /** The same in UTF-8, where they are large. */
  readonly argumentsBytes: Uint8Array | undefined;
  #response: Answer | undefined;
  #startedAtMs: number | undefined;
  #isOpen = false;
  #place = 0;
  #isToolError = false;

  constructor(
    parts: { readonly recorder: Recorder; readonly clock: Clock },
    caller: Caller,
    called: CalledTool,
    judgement: Judgement,
    argumentsText: string,
  ) {
    this.#recorder = parts.recorder;
    this.#clock = parts.clock;
    this.#judgement = judgement;
    this.argumentsText = argumentsText;
    if (argumentsText.length >= PROXY_LIMITS.encodedCharsMin) this.argumentsBytes = utf8(argumentsText);
    const { transport, processName, label } = caller.asker;
    this.#call = {
      call_id: callIdOf(judgement.who),
      origin: called.server.isExternal ? "mcp" : "builtin",
      transport,
      server_name: called.server.name,
      tool_name: called.tool,
      method: METHODS_OF.tools.use,
      request_id: caller.requestId,
      process_name: processName,
      arguments_preview: argumentsText.slice(0, PROXY_LIMITS.previewCharsMax),
      response_preview: null,
      bytes_sent: this.argumentsBytes?.length ?? Buffer.byteLength(argumentsText),
      bytes_received: null,
      label_in: labelText(label),
      label_out: null,
      is_pinned: called.isPinned,
    };
  }

  get eventId(): string {
    return this.#judgement.who.event_id;
  }

  /** Throws Failure where it cannot be recorded: then the call is not made, and there is nothing to end. */
  intent(hasWaited: boolean, isEarly: boolean): void {
    this.#place = this.#recorder.intent(this.#judgement, this.#call.bytes_sent ?? 0, hasWaited, isEarly);
    this.#isOpen = true;
  }

  /** The intent goes before what it is of. Undefined: it is on the channel. Throws the reason of the signal. */
  intentSent(signal: AbortSignal): Promise<void> | undefined {
    return this.#recorder.sent(this.#place, signal);
  }

  /** It is dispatched. */
  start(): void {
    this.#startedAtMs = this.#clock.monotonicMs();
  }

  answered(answer: Answer, label: Label, isWhole: boolean): void {
    this.#response = answer;
    this.isResponseCut = !isWhole;
    this.#call.bytes_received = answer.bytes?.length ?? Buffer.byteLength(answer.text);
    this.#call.label_out = labelText(label);
  }

  /** The client gets it; `isError`: it says that it failed. What is withheld is in the event that was judged, as evidence, and in no preview. */
  given(answer: Answer, isError: boolean): void {
    this.#isToolError = answer.kind === "result" && isError;
    this.#call.response_preview = beginningOf(answer).slice(0, PROXY_LIMITS.previewCharsMax);
  }

  /** What happened to it is all that its failure says. */
  failed(thrown: unknown): void {
    const kind = thrown instanceof Failure ? thrown.kind : "internal";
    const words = thrown instanceof Failure ? `${kind}: ${messageOf(thrown)}` : kind;
    this.end(kind === "cancelled" ? "cancelled" : "failed", words);
  }

  end(outcome: Outcome, error: string | null = null): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    const started = this.#startedAtMs;
    const bodies = this.#bodies();
    const said = outcome === "done" && this.#isToolError ? TOOL_ERROR : null;
    const fact: CallFact = {
      kind: "call",
      who: this.#judgement.who,
      call: this.#call,
      outcome,
      decision: decisionOf(this.#judgement.decision),
      error: error?.slice(0, PROXY_LIMITS.errorCharsMax) ?? said,
      duration_ms: started === undefined ? null : this.#clock.monotonicMs() - started,
    };
    const bytes = bytesMaxOf(bodies?.request) + bytesMaxOf(bodies?.response);
    this.#recorder.end(bodies === undefined ? fact : { ...fact, bodies }, bytes);
  }

  /** What no event holds whole. Together they fit one message. */
  #bodies(): Bodies | undefined {
    const isRequestCut = this.#judgement.isCut;
    const response = this.isResponseCut ? this.#response : undefined;
    if (!isRequestCut && response === undefined) return undefined;
    const bodies: { request?: Bodies["request"]; response?: Bodies["response"] } = {};
    let left: number = PROXY_LIMITS.bodiesBytesMax;
    if (isRequestCut) {
      bodies.request = bodyOf(
        { text: this.argumentsText, bytes: this.argumentsBytes },
        this.#call.bytes_sent ?? 0,
        left,
      );
      left -= Math.min(left, bodies.request.bytes);
    }
    if (response !== undefined) bodies.response = bodyOf(response, this.#call.bytes_received ?? 0, left);
    return bodies as Bodies;
  }
}

export function callIdOf({ event_id }: Pick<FactWho, "event_id">): string {
  return `call_${event_id}`;
}

function bodyOf(answer: Pick<Answer, "text" | "bytes">, bytes: number, left: number) {
  const max = Math.min(left, PROXY_LIMITS.bodyBytesMax);
  if (bytes <= max) return { text: answer.bytes ?? answer.text, bytes };
  return { text: answer.text.slice(0, Math.floor(max / UNIT_BYTES_MAX)), bytes };
}

/** A preview's worth of it at least; what stands behind that in the text may be cut within a character. */
function beginningOf(answer: Answer): string {
  if (answer.bytes === undefined) return answer.text;
  return textOf(answer.bytes.subarray(0, (PROXY_LIMITS.previewCharsMax + 1) * UNIT_BYTES_MAX));
}

/** What a body takes at most. */
function bytesMaxOf(body: Bodies["request"]): number {
  if (body === undefined) return 0;
  return typeof body.text === "string" ? body.text.length * UNIT_BYTES_MAX : body.text.length;
}

function decisionOf({ action, rule_id, reason }: Decision): CallFact["decision"] {
  return { action, rule_id, reason };
}
