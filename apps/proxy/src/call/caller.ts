import type { Failure } from "@capsem/base";
import type { Era } from "@capsem/mcp-protocol";
import type { Asker } from "../judge/judge.ts";
import type { Params } from "./params.ts";

/** The `result` or `error` of an answer. */
export interface Answer {
  readonly kind: "result" | "error";
  /** Where there are bytes it is made when it is asked for. */
  readonly text: string;
  /** The text in UTF-8, where it is large and at hand. */
  readonly bytes?: Uint8Array | undefined;
}

/** What a client can be asked in the course of its request. */
export interface Abilities {
  readonly sampling: boolean;
  readonly elicitation: boolean;
  readonly roots: boolean;
}
export const NO_ABILITIES: Abilities = { sampling: false, elicitation: false, roots: false };

/** One request of a client, as the rail sees it while it runs. */
export interface Caller {
  /** The client itself: places are shared out between these. */
  readonly owner: object;
  readonly asker: Asker;
  /** What its results taint. */
  readonly taintKey: string;
  readonly era: Era;
  readonly abilities: Abilities;
  /** The request's id as text; null of the host's own. */
  readonly requestId: string | null;
  /** JSON text of the token that progress is told under. */
  readonly progressToken: string | undefined;
  /** What headers repeat of its arguments, by their names in lower case; undefined: there are no such headers. */
  readonly paramHeaders: ReadonlyMap<string, string> | undefined;
  /** From which level on it wants log messages, where it has said so once for all its requests. */
  readonly logLevel: string | undefined;
  /** Whether it wants log messages of this level. */
  wantsLog(level: string): boolean;
  /** Aborts when its client has cancelled it, or is gone, and with `abort`. The reason is a Failure. */
  readonly signal: AbortSignal;
  /** Ends it from this side, as when its time is over. */
  abort(reason: Failure): void;
  /** Of the monotonic clock: the request is over then, whatever it did. */
  readonly deadlineMs: number;
  /** A whole message in the course of the request. False: there is no way to the client. */
  tell(message: string): Promise<boolean>;
  /** Asks the client in the course of the request. Throws Failure "unreachable", "timeout", "cancelled". */
  ask(question: Question, signal: AbortSignal): Promise<Answer>;
}

/** A request of a server to a client. */
export interface Question {
  readonly server: string;
  readonly method: string;
  readonly paramsText: string | undefined;
  /** How far the client is, under the token that the server knows. */
  readonly onProgress: (params: Params) => void;
}
