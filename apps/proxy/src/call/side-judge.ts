import type { DeclaredServer } from "../catalog/server-book.ts";
import { type Draft, requestDraft, resultDraft } from "../judge/events.ts";
import { type Asker, type Fields, type Judgement, judge } from "../judge/judge.ts";
import { plainObject } from "../judge/plain-json.ts";
import { resultParts } from "../judge/result-fields.ts";
import type { RailParts } from "../parts.ts";
import type { Recorder } from "../record/recorder.ts";
import type { Params } from "./params.ts";
import { blocked, notApproved } from "./refusal.ts";

/** Judges what a server and a client say to each other beside a request and its answer: `mcp.event`s. */
export class Side {
  readonly #parts: Pick<RailParts, "vm" | "policy">;
  readonly #recorder: Recorder;
  readonly #server: DeclaredServer;
  readonly #askerNow: () => Asker;
  readonly #timeLeftMs: () => number;

  constructor(
    parts: Pick<RailParts, "vm" | "policy">,
    recorder: Recorder,
    server: DeclaredServer,
    now: { readonly asker: () => Asker; readonly timeLeftMs: () => number },
  ) {
    this.#parts = parts;
    this.#recorder = recorder;
    this.#server = server;
    this.#askerNow = now.asker;
    this.#timeLeftMs = now.timeLeftMs;
  }

  /** A notification: there is many a one, so what is let past unnoticed by every rule is not recorded. */
  mayPass(method: string, paramsText: string | undefined): boolean {
    return this.#passes(
      this.#draft(method, { "mcp.response.content": paramsText ?? "" }),
      paramsText?.length ?? 0,
    );
  }

  /** The same of one of the client's: what it tells the server are arguments. */
  mayPassOn(method: string, params: Params): boolean {
    return this.#passes(this.#draft(method, { "mcp.request.arguments": params }), 0);
  }

  #passes(draft: Draft, bytes: number): boolean {
    const judgement = this.#judged(draft);
    const { action, explanation } = judgement.decision;
    if (action !== "allow" || explanation.matched.length > 0) this.#recorder.noted(judgement, bytes);
    return action === "allow";
  }

  /** What the server asks the client. Throws Failure("policy"). */
  async checkRequest(method: string, paramsText: string | undefined, signal: AbortSignal): Promise<void> {
    const params = paramsText === undefined ? {} : plainObject(paramsText);
    await this.#check(
      this.#draft(method, { "mcp.request.arguments": params }),
      paramsText?.length ?? 0,
      signal,
    );
  }

  /** What the client answers. Throws Failure("policy"). */
  async checkResponse(method: string, resultText: string, signal: AbortSignal): Promise<void> {
    const { fields } = resultParts(resultText, false);
    // What a person has typed into a form is in no content block.
    if (fields["mcp.response.content"] === "") fields["mcp.response.content"] = resultText;
    const draft = resultDraft(this.#draft(method, {}), method, fields, false);
    await this.#check(draft, resultText.length, signal);
  }

  async #check(draft: Draft, bytes: number, signal: AbortSignal): Promise<void> {
    const judgement = this.#judged(draft);
    const { decision } = judgement;
    this.#recorder.noted(judgement, bytes);
    const what = `pass ${draft.fields["mcp.method"]} on`;
    if (decision.action === "block") throw blocked(what, decision);
    if (decision.action === "allow") return;
    const end = await this.#recorder.ask(
      judgement,
      `${what} (${this.#server.name})`,
      this.#timeLeftMs(),
      signal,
    );
    if (end.state !== "approved") throw notApproved(what, decision, end);
  }

  #draft(method: string, more: Fields): Draft {
    const draft = requestDraft(this.#parts.vm, this.#askerNow(), { method }, { server: this.#server });
    return { type: draft.type, fields: { ...draft.fields, ...more } };
  }

  #judged({ type, fields }: Draft): Judgement {
    const who = this.#recorder.who(this.#askerNow().person);
    return judge(this.#parts.policy.snapshot, type, who, fields);
  }
}
