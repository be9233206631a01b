import { type Deferred, defer, Failure } from "@capsem/base";
import {
  type Envelope,
  errorText,
  META_KEYS,
  memberOf,
  NOTIFICATIONS,
  notificationText,
  RPC_CODES,
  readEnvelope,
  withMember,
} from "@capsem/mcp-protocol";
import type { DeclaredServer } from "../catalog/server-book.ts";
import { PROXY_LIMITS } from "../limits.ts";
import type { RailParts } from "../parts.ts";
import { neighbourOf } from "../parts.ts";
import { type Abilities, type Answer, type Caller, NO_ABILITIES, type Question } from "./caller.ts";
import type { Side } from "./side-judge.ts";
import { untilAborted } from "./until-aborted.ts";
import { type Ears, requestUpstream } from "./upstream.ts";

export interface ExchangeOptions {
  readonly parts: Pick<RailParts, "neighbours" | "clock">;
  readonly server: DeclaredServer;
  readonly method: string;
  /** What is done by it, for whoever waited in vain. */
  readonly what: string;
  /** Without a sign of life it is over after this. */
  readonly idleMs: number;
  /** Of the monotonic clock: with signs of life it is over then. */
  readonly deadlineMs: number;
  /** Judges what passes beside the request and its answer. */
  readonly side: Side;
}

/** A request of the server that somebody has to answer, where its client is asked by the answer to its own request. */
export interface Input {
  readonly method: string;
  readonly paramsText: string | undefined;
  readonly done: Deferred<Answer>;
}

const REQUESTS = ["sampling/createMessage", "elicitation/create", "roots/list"] as const;
export type InputMethod = (typeof REQUESTS)[number];

/** What a client must be able to do for it. */
const ABILITY: Readonly<Record<InputMethod, keyof Abilities>> = {
  "sampling/createMessage": "sampling",
  "elicitation/create": "elicitation",
  "roots/list": "roots",
};

export function isInputMethod(method: string): method is InputMethod {
  return (REQUESTS as readonly string[]).includes(method);
}

/** Lists that changed are told by the aggregator, and of what is then seen by us. */
const TOLD_ELSEWHERE: ReadonlySet<string> = new Set([
  NOTIFICATIONS.toolsChanged,
  NOTIFICATIONS.promptsChanged,
  NOTIFICATIONS.resourcesChanged,
  NOTIFICATIONS.resourceUpdated,
  NOTIFICATIONS.cancelled,
]);

/**
 * One request to a server with all that passes in its course: progress and logs to the client, requests of the server and
 * the client's answers. The client may be another one's request by the time of the answer: `caller` is the present one.
 */
export class Exchange {
  caller: Caller;
  readonly #options: ExchangeOptions;
  /** Of the request; of a client that may come back with another, its own. */
  readonly signal: AbortSignal;
  readonly #abort: (reason: Failure) => void;
  /** The token that the server knows; callers may have others. */
  readonly #token: string | undefined;
  readonly #inputs: Input[] = [];
  #onInput: (() => void) | undefined;
  #aliveAtMs: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(caller: Caller, options: ExchangeOptions) {
    this.caller = caller;
    this.#options = options;
    if (caller.era === "legacy") {
      this.signal = caller.signal;
      this.#abort = (reason) => caller.abort(reason);
    } else {
      const own = new AbortController();
      this.signal = own.signal;
      this.#abort = (reason) => own.abort(reason);
    }
    this.#token = caller.progressToken;
    this.#aliveAtMs = options.parts.clock.monotonicMs();
  }

  /** Requests of the server that wait for an answer; taken out of here. */
  takeInputs(): Input[] {
    return this.#inputs.splice(0);
  }

  /** Resolves when there is one. */
  inputCame(): Promise<void> {
    if (this.#inputs.length > 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onInput = resolve;
    });
  }

  abort(reason: Failure): void {
    this.#abort(reason);
  }

  /**
   * `argumentsBytes`: that member of the params, which are then without it. Throws what it was aborted with,
   * Failure("mcp_server_timeout"), and what the request throws.
   */
  async run(paramsText: string, argumentsBytes?: Uint8Array): Promise<Answer> {
    const { parts, server, method, deadlineMs } = this.#options;
    this.#aliveAtMs = parts.clock.monotonicMs();
    this.#arm();
    const left = deadlineMs - this.#aliveAtMs;
    const request = {
      server: server.name,
      method,
      params: paramsText,
      client: this.#abilities(),
      timeout_ms: Math.max(1, Math.ceil(left)),
      ...(argumentsBytes === undefined ? {} : { arguments: argumentsBytes }),
    };
    try {
      return await requestUpstream(
        neighbourOf(parts.neighbours, server.isExternal),
        request,
        this.#ears,
        this.signal,
      );
    } finally {
      clearTimeout(this.#timer);
      for (const { done } of this.takeInputs()) done.reject(over());
    }
  }

  #abilities(): Abilities {
    const { sampling, elicitation, roots } = this.caller.abilities;
    return this.caller.requestId === null ? NO_ABILITIES : { sampling, elicitation, roots };
  }

  /** One timer, set again when it comes: a sign of life costs nothing. */
  #arm(): void {
    const { parts, idleMs, deadlineMs, what } = this.#options;
    const now = parts.clock.monotonicMs();
    const dueMs = Math.min(deadlineMs, this.#aliveAtMs + idleMs);
    if (dueMs <= now) {
      const took = ((now - this.#aliveAtMs) / 1_000).toFixed(1);
      this.abort(new Failure("mcp_server_timeout", `Cannot ${what}: no answer within ${took} s`));
      return;
    }
    this.#timer = setTimeout(() => this.#arm(), dueMs - now + 1);
  }

  readonly #ears: Ears = {
    notified: (message) => this.#notified(message),
    asked: (message, tell, signal) => this.#asked(message, tell, signal),
  };

  async #notified(message: string): Promise<void> {
    const envelope = readEnvelope(message);
    if (envelope.kind !== "notification") return;
    const { method, paramsText } = envelope;
    if (TOLD_ELSEWHERE.has(method)) return;
    this.#aliveAtMs = this.#options.parts.clock.monotonicMs();
    const told = this.#forCaller(method, paramsText, message);
    if (told !== undefined && this.#options.side.mayPass(method, paramsText)) await this.caller.tell(told);
  }

  /** As this caller has it; undefined: it has not asked for such. */
  #forCaller(method: string, paramsText: string | undefined, message: string): string | undefined {
    if (method === NOTIFICATIONS.progress) {
      const token = this.caller.progressToken;
      if (token === undefined) return undefined;
      if (token === this.#token) return message;
      return notificationText(method, withMember(paramsText ?? "{}", META_KEYS.progressToken, token));
    }
    if (method !== NOTIFICATIONS.message) return message;
    const level = paramsText === undefined ? undefined : memberOf(paramsText, "level");
    return level !== undefined && this.caller.wantsLog(JSON.parse(level) as string) ? message : undefined;
  }

  /** Never rejects: what goes wrong is the server's answer. */
  async #asked(message: string, tell: (message: string) => void, signal: AbortSignal): Promise<string> {
    let envelope: Envelope;
    try {
      envelope = readEnvelope(message);
    } catch (thrown) {
      const reason = thrown instanceof Failure ? thrown.message : "Cannot read message";
      return errorText(null, RPC_CODES.invalidRequest, reason);
    }
    if (envelope.kind !== "request") return errorText(null, RPC_CODES.invalidRequest, "it asks nothing");
    const { idText, method, paramsText } = envelope;
    try {
      const { kind, text } = await this.#answered(method, paramsText, signal, tell);
      return `{"jsonrpc":"2.0","id":${idText},"${kind}":${text}}`;
    } catch (thrown) {
      const isOurs = thrown instanceof Failure;
      const code = isOurs && thrown.kind === "policy" ? RPC_CODES.invalidRequest : RPC_CODES.internalError;
      const isUnknown = isOurs && thrown.kind === "unreachable";
      const text = isOurs ? thrown.message : "Cannot ask the client: internal error";
      return errorText(idText, isUnknown ? RPC_CODES.methodNotFound : code, text);
    }
  }

  async #answered(
    method: string,
    paramsText: string | undefined,
    signal: AbortSignal,
    tell?: (message: string) => void,
  ): Promise<Answer> {
    if (!isInputMethod(method) || !this.#abilities()[ABILITY[method]]) {
      throw new Failure("unreachable", `Cannot ask the client: it does not answer ${method}`);
    }
    const { side } = this.#options;
    await side.checkRequest(method, paramsText, signal);
    if (signal.aborted) throw signal.reason;
    const answer =
      this.caller.era === "legacy"
        ? await this.caller.ask(this.#question(method, paramsText, tell), signal)
        : await untilAborted(this.#input(method, paramsText), signal);
    this.#aliveAtMs = this.#options.parts.clock.monotonicMs();
    if (answer.kind === "result") await side.checkResponse(method, answer.text, signal);
    return answer;
  }

  #question(method: string, paramsText: string | undefined, tell?: (message: string) => void): Question {
    const { server, side, parts } = this.#options;
    return {
      ...{ server: server.name, method, paramsText },
      onProgress: (params) => {
        this.#aliveAtMs = parts.clock.monotonicMs();
        const { progress } = NOTIFICATIONS;
        // A server that asks by its answer hears of nothing in between.
        if (tell === undefined || !side.mayPassOn(progress, params)) return;
        tell(notificationText(progress, JSON.stringify(params)));
      },
    };
  }

  /**
   * The answer of the client to what a server asks by its own answer. Throws Failure("unreachable") where the client
   * cannot be asked, and "policy".
   */
  async input(method: string, paramsText: string | undefined): Promise<Answer> {
    return this.#answered(method, paramsText, this.signal);
  }

  /** A client of the newer protocol is asked by the answer to its request, and comes back with what it says. */
  #input(method: string, paramsText: string | undefined): Promise<Answer> {
    if (this.#inputs.length >= PROXY_LIMITS.inputRequestsMax) {
      throw new Failure("busy", "Cannot ask the client: too many questions wait");
    }
    const done = defer<Answer>();
    this.#inputs.push({ method, paramsText, done });
    this.#onInput?.();
    this.#onInput = undefined;
    return done.promise;
  }
}

function over(): Failure {
  return new Failure("cancelled", "Cannot ask the client: its call is over");
}
