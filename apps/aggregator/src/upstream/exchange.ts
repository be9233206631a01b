import { Failure, utf8 } from "@capsem/base";
import { aroundLastMember, memberOf, readEnvelope, requestText } from "@capsem/mcp-protocol";
import type { HttpHeader, HttpResponse } from "@capsem/net";
import { type EventStreamParser, readEvents } from "../event-stream.ts";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { type Message, messageOf, textOf, withoutMark } from "../message.ts";
import { discard, type Endpoint, mediaTypeOf, readAll } from "./endpoint.ts";
import { quoted, rude } from "./failure.ts";
import type { Inbox } from "./inbox.ts";
import type { OpenCall } from "./open-call.ts";

export const EVENT_STREAM = "text/event-stream";
export const JSON_TYPE = "application/json";

/** What each POST says of itself. */
export const POST_HEADERS: readonly HttpHeader[] = [
  ["content-type", JSON_TYPE],
  ["accept", `${JSON_TYPE}, ${EVENT_STREAM}`],
];

/** The message of a call, in UTF-8 where its arguments are: `paramsText` are the others. */
export function callMessage(
  { idText, request }: Pick<OpenCall, "idText" | "request">,
  paramsText: string | undefined,
): Message {
  const { method, argumentsBytes } = request;
  if (argumentsBytes === undefined) return requestText(idText, method, paramsText);
  const [head, tail] = aroundLastMember(paramsText ?? "{}", "arguments");
  const start = requestText(idText, method, head).slice(0, -1);
  return Buffer.concat([utf8(start), argumentsBytes, utf8(`${tail}}`)]);
}

export interface AnswerReading {
  readonly response: HttpResponse;
  readonly call: OpenCall;
  readonly inbox: Inbox;
  readonly endpoint: Endpoint;
  /** Of the call: it knows where to go on when the stream is cut. */
  readonly parser: EventStreamParser;
}

/** Reads what came for a call, until the call or what came is over. For a status of success. */
export async function readAnswer(reading: AnswerReading): Promise<void> {
  const { response, call, inbox, endpoint } = reading;
  const type = mediaTypeOf(response);
  if (type === EVENT_STREAM) return readCallEvents(reading);
  if (type !== JSON_TYPE) {
    response.body.cancel();
    throw rude(`answers with ${type === "" ? "no content type" : quoted(type)}`);
  }
  const bytes = await readAll(response.body, UPSTREAM_LIMITS.messageBytesMax, endpoint.budget);
  await inbox.receive(messageOf(bytes), call);
}

async function readCallEvents({ response, call, inbox, endpoint, parser }: AnswerReading): Promise<void> {
  const { body } = response;
  const count = (bytes: number) => call.took(bytes);
  let isAnswered = false;
  try {
    for await (const { type, data } of readEvents({ body, parser, budget: endpoint.budget, count })) {
      if (type !== "message") continue;
      await inbox.receive(data, call);
      if (!call.isOver) continue;
      isAnswered = true;
      return;
    }
  } finally {
    if (isAnswered) discard(body);
    else body.cancel();
  }
}

/** A status that is no success: the error of the call that its body is. Throws what else it says. */
export async function readRefusal(
  response: HttpResponse,
  call: OpenCall,
  endpoint: Endpoint,
): Promise<ErrorIn> {
  const text = await refusalText(response, endpoint);
  const error = text === "" ? null : errorIn(text);
  if (error !== null && error.idText === call.idText) return error;
  throw refused(response.status, text);
}

/** What the body of a refusal says, as far as it is a text of moderate length. */
export async function refusalText({ body }: HttpResponse, endpoint: Endpoint): Promise<string> {
  try {
    return textOf(withoutMark(await readAll(body, UPSTREAM_LIMITS.errorBodyBytesMax, endpoint.budget)));
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    return "";
  }
}

export function refused(status: number, text: string): Failure {
  return rude(`answers with HTTP ${status}${wordsIn(text)}`, { detail: `http_${status}` });
}

export interface ErrorIn {
  readonly idText: string | null;
  readonly errorText: string;
}

/** The JSON-RPC error that a text is, or null. */
export function errorIn(text: string): ErrorIn | null {
  try {
    const envelope = readEnvelope(text);
    return envelope.kind === "error" ? envelope : null;
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    return null;
  }
}

/** For people: the message of an error; of a page nothing is worth showing. */
function wordsIn(text: string): string {
  const error = errorIn(text);
  if (error !== null) {
    const message = memberOf(error.errorText, "message");
    return message?.startsWith('"') === true ? `: ${quoted(JSON.parse(message) as string)}` : "";
  }
  return text === "" || text.trimStart().startsWith("<") ? "" : `: ${quoted(text)}`;
}

/** Sends what has no answer. Never rejects: nothing waits for it. */
export async function sendNotice(
  endpoint: Endpoint,
  headers: readonly HttpHeader[],
  text: string,
  signal: AbortSignal,
  timeoutMs: number = UPSTREAM_LIMITS.noticeTimeoutMs,
): Promise<number | null> {
  try {
    const all = [...POST_HEADERS, ...headers];
    const response = await endpoint.send({ method: "POST", headers: all, message: text, signal, timeoutMs });
    discard(response.body);
    return response.status;
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    return null;
  }
}

export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}
