import { Failure } from "@capsem/base";
import { timeoutOf } from "@capsem/mcp-protocol";
import type { Answer, Caller, Question } from "../call/caller.ts";
import type { Params } from "../call/params.ts";
import type { Client, Origin } from "../conversation.ts";
import type { Asker } from "../judge/judge.ts";
import { levelOf, type Said } from "./client-state.ts";

export interface RequestContext {
  readonly client: Client;
  readonly owner: object;
  readonly idText: string;
  readonly id: string | number;
  readonly method: string;
  readonly params: Params;
  readonly said: Said;
  readonly origin: Origin;
  readonly asker: Asker;
  readonly nowMs: number;
  readonly controller: AbortController;
  readonly ask: (question: Question, about: string, signal: AbortSignal) => Promise<Answer>;
}

/** One request of a client, while it is not answered. */
export class OpenRequest implements Caller {
  readonly method: string;
  readonly params: Params;
  readonly idText: string;
  readonly owner: object;
  readonly asker: Asker;
  readonly taintKey: string;
  readonly era: Caller["era"];
  readonly abilities: Caller["abilities"];
  readonly requestId: string;
  readonly progressToken: string | undefined;
  readonly paramHeaders: Caller["paramHeaders"];
  readonly logLevel: string | undefined;
  readonly signal: AbortSignal;
  readonly deadlineMs: number;
  readonly #context: RequestContext;

  constructor(context: RequestContext) {
    const { said, client, method } = context;
    this.#context = context;
    this.method = method;
    this.params = context.params;
    this.idText = context.idText;
    this.owner = context.owner;
    this.asker = context.asker;
    this.taintKey = client.taintKey;
    this.era = said.era;
    this.abilities = said.abilities;
    this.requestId = String(context.id).slice(0, ID_CHARS_MAX);
    this.progressToken = said.progressToken;
    this.paramHeaders = client.paramHeaders;
    this.logLevel = said.level;
    this.signal = context.controller.signal;
    this.deadlineMs = context.nowMs + (timeoutOf(method) ?? Number.POSITIVE_INFINITY);
  }

  wantsLog(level: string): boolean {
    const { logLevel } = this.#context.said;
    return logLevel === undefined || levelOf(level) >= logLevel;
  }

  abort(reason: Failure): void {
    this.#context.controller.abort(reason);
  }

  async tell(message: string): Promise<boolean> {
    const { client, idText } = this.#context;
    return this.signal.aborted ? false : client.send(message, idText);
  }

  ask(question: Question, signal: AbortSignal): Promise<Answer> {
    return this.#context.ask(question, this.idText, signal);
  }
}

/** A longer id is an id all the same; a row has its beginning. */
const ID_CHARS_MAX = 256;

/** Why a request ends without an answer. */
export function cancelledByClient(): Failure {
  return new Failure("cancelled", "Cannot go on: its client has cancelled it");
}

export function clientGone(): Failure {
  return new Failure("cancelled", "Cannot go on: its client is gone");
}
