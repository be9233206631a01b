import { clientName } from "./client-name.ts";
import { ASK_WAIT_MS_MAX, STATE_LIFE_SECS } from "./limits.ts";
import {
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  type ClientCapabilities,
  createRequestStateCodec,
  type ElicitRequestFormParams,
  type Implementation,
  type InputRequiredResult,
  inputRequired,
  inputResponse,
  ProtocolError,
  ProtocolErrorCode,
  SdkError,
  SdkErrorCode,
  type Server,
  type ServerContext,
} from "./mcp-sdk.ts";

/** An ask of the service that a form stands for: what an answer of the form may do. */
export interface AskRef {
  readonly id: string;
  readonly ruleId: string;
  /** Whether the form offered an approval for the whole VM. */
  readonly offersVm: boolean;
  /** In ms since 1970: nobody can answer after it. */
  readonly untilMs: number;
}

export interface Question {
  readonly ask: AskRef;
  readonly message: string;
  readonly requestedSchema: ElicitRequestFormParams["requestedSchema"];
}

/** What a client's user did with a form. The content is whatever the client sent. */
export interface Answer {
  readonly kind: "answer";
  readonly ask: AskRef;
  readonly action: "accept" | "decline" | "cancel";
  readonly content: Readonly<Record<string, unknown>>;
}

export type Reply =
  | Answer
  /** The call ends with this, and comes again with the answer. */
  | { readonly kind: "suspended"; readonly result: InputRequiredResult }
  | { readonly kind: "unanswered"; readonly isLate: boolean };

/** The client of one call: who it is, and whether its user can be asked in the midst of it. */
export interface Conversation {
  /** What the service records of who called. */
  readonly clientName: string;
  /** Null: it has no forms. */
  readonly ask: ((question: Question) => Promise<Reply>) | null;
  /** Choices of a form may have titles of their own (2025-11-25); before, they are a list beside the values. */
  readonly hasTitles: boolean;
  /** Of a call that comes again with its user's answer. */
  readonly answer: Answer | null;
}

/** The key of a form's answer. */
const FORM = "decision";

interface Params {
  readonly name: string;
  readonly arguments?: Readonly<Record<string, unknown>> | undefined;
}

/** Throws the protocol's error for a state that is not of this process, or not of this very call. */
export async function conversationOf(
  server: Server,
  context: ServerContext,
  params: Params,
  key: () => Uint8Array,
): Promise<Conversation> {
  // Empty in the SDK's types.
  const envelope = context.mcpReq.envelope as Readonly<Record<string, unknown>> | undefined;
  const info = envelope?.[CLIENT_INFO_META_KEY] as Implementation | undefined;
  const capabilities = envelope?.[CLIENT_CAPABILITIES_META_KEY] as ClientCapabilities | undefined;
  const isModern = envelope !== undefined;
  const revision = server.getNegotiatedProtocolVersion() ?? "";
  const hasForms = canFillForms(isModern ? capabilities : server.getClientCapabilities());
  const suspend = (question: Question) => suspended(question, context, params, key());
  const wait = (question: Question) => waited(question, context);
  return {
    clientName: clientName(isModern ? info : server.getClientVersion()),
    ask: hasForms ? (isModern ? suspend : wait) : null,
    hasTitles: isModern || revision >= "2025-11-25",
    answer: await answerIn(context, params, key),
  };
}

/** A client that names no mode has forms, the only one there was at first. */
function canFillForms(capabilities: ClientCapabilities | undefined): boolean {
  const elicitation = capabilities?.elicitation;
  return elicitation !== undefined && (elicitation.form !== undefined || elicitation.url === undefined);
}

/** Since 2026-07-28 nothing waits here: the client comes again, with what it was given. */
async function suspended(
  { ask, ...form }: Question,
  context: ServerContext,
  params: Params,
  key: Uint8Array,
): Promise<Reply> {
  const requestState = await sealOf(params, key).mint(ask, context);
  const inputRequests = { [FORM]: inputRequired.elicit(form) };
  return { kind: "suspended", result: inputRequired({ inputRequests, requestState }) };
}

/**
 * Until 2025-11-25 the client is asked while its call is open. Not by the SDK's own shim for this: where a form fails that
 * one answers the call with plain text, and a failure here has words that a model can act on.
 */
async function waited({ ask, ...params }: Question, { mcpReq }: ServerContext): Promise<Reply> {
  try {
    const options = { timeout: leftMs(ask), signal: mcpReq.signal };
    const { action, content = {} } = await mcpReq.send({ method: "elicitation/create", params }, options);
    return { kind: "answer", ask, action, content };
  } catch (thrown) {
    mcpReq.signal.throwIfAborted();
    const isLate = thrown instanceof SdkError && thrown.code === SdkErrorCode.RequestTimeout;
    return { kind: "unanswered", isLate };
  }
}

async function answerIn(
  context: ServerContext,
  params: Params,
  key: () => Uint8Array,
): Promise<Answer | null> {
  const state = context.mcpReq.requestState();
  if (state === undefined) return null;
  const ask = await opened(state, context, params, key);
  const view = inputResponse(context.mcpReq.inputResponses, FORM);
  if (view.kind !== "elicit") return null;
  return { kind: "answer", ask, action: view.action, content: view.content ?? {} };
}

async function opened(
  state: unknown,
  context: ServerContext,
  params: Params,
  key: () => Uint8Array,
): Promise<AskRef> {
  try {
    if (typeof state !== "string") throw new Error("no text");
    return await sealOf(params, key()).verify(state, context);
  } catch (cause) {
    // As the SDK words it: which of the checks failed is not told.
    const text = "Invalid or expired requestState";
    const error = new ProtocolError(ProtocolErrorCode.InvalidParams, text, {
      reason: "invalid_request_state",
    });
    error.cause = cause;
    throw error;
  }
}

/** Bound to the call: with another tool or other arguments it does not open. */
function sealOf(params: Params, key: Uint8Array) {
  const call = JSON.stringify([params.name, sorted(params.arguments ?? {})]);
  return createRequestStateCodec<AskRef>({ key, ttlSeconds: STATE_LIFE_SECS, bind: () => call });
}

/** A client may send the members of an object in another order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([name, inner]) => [name, sorted(inner)] as const);
  return Object.fromEntries(entries.sort(([left], [right]) => (left < right ? -1 : 1)));
}

function leftMs({ untilMs }: AskRef): number {
  return Math.min(Math.max(untilMs - Date.now(), 1), ASK_WAIT_MS_MAX);
}
