/**
 * JSON-RPC 2.0 messages as MCP uses them. What a message carries stays text: parameters, results and errors are spans of
 * it, byte for byte.
 */
import { Failure } from "@capsem/base";
import { RPC_CODES } from "./protocol.ts";
import {
  CHAR,
  checkEnd,
  decodeString,
  eachMember,
  faultAt,
  skipColon,
  skipSpace,
  skipString,
  skipValue,
} from "./scan.ts";

export interface RequestEnvelope {
  readonly kind: "request";
  readonly id: string | number;
  /** As it was written: an answer repeats it. */
  readonly idText: string;
  readonly method: string;
  /** An object, as it was written. */
  readonly paramsText: string | undefined;
}
export interface NotificationEnvelope {
  readonly kind: "notification";
  readonly method: string;
  readonly paramsText: string | undefined;
}
export interface ResultEnvelope {
  readonly kind: "result";
  readonly idText: string;
  readonly resultText: string;
  /** Where it stands in the message. */
  readonly resultFrom: number;
}
export interface ErrorEnvelope {
  readonly kind: "error";
  /** Null where the peer could not tell which request it means. */
  readonly idText: string | null;
  readonly errorText: string;
  /** Where it stands in the message. */
  readonly errorFrom: number;
}
export type Envelope = RequestEnvelope | NotificationEnvelope | ResultEnvelope | ErrorEnvelope;

/** The span of a member: [from, to). */
type Span = readonly [number, number];

/**
 * Reads one message and checks the whole text. Throws Failure("parse_error") where it is no JSON, and
 * Failure("invalid_request") where it is no single message of JSON-RPC 2.0: a batch, a member twice, an id of null. The
 * facts of the latter hold `id_text` where the id could be read. `envelopeErrorCode` has their codes.
 */
export function readEnvelope(text: string): Envelope {
  const from = skipSpace(text, 0);
  if (text.charCodeAt(from) !== CHAR.openObject) throw notAnObject(text, from);
  const spans = new Map<string, Span>();
  let twice: string | undefined;
  const behind = eachMember(text, from, 0, (name, valueFrom, valueTo) => {
    if (spans.has(name)) twice ??= name;
    spans.set(name, [valueFrom, valueTo]);
  });
  checkEnd(text, behind);
  const idText = textAt(text, spans.get("id"));
  if (twice !== undefined) throw invalid(`member "${twice.slice(0, 64)}" stands twice`, idText);
  if (stringAt(text, spans.get("jsonrpc")) !== "2.0") throw invalid('jsonrpc is not "2.0"', idText);
  if (spans.has("method")) return called(text, spans, idText);
  return answered(text, spans, idText);
}

function called(text: string, spans: Map<string, Span>, idText: string | undefined): Envelope {
  const method = stringAt(text, spans.get("method"));
  if (method === undefined) throw invalid("method is not a string", idText);
  if (spans.has("result") || spans.has("error")) throw invalid("it asks and answers", idText);
  const paramsText = textAt(text, spans.get("params"));
  if (paramsText !== undefined && paramsText.charCodeAt(0) !== CHAR.openObject) {
    throw invalid("params is not an object", idText);
  }
  if (idText === undefined) return { kind: "notification", method, paramsText };
  return { kind: "request", id: checkedId(idText), idText, method, paramsText };
}

function answered(text: string, spans: Map<string, Span>, idText: string | undefined): Envelope {
  const result = textAt(text, spans.get("result"));
  const error = textAt(text, spans.get("error"));
  if (result !== undefined && error !== undefined) throw invalid("it has a result and an error", idText);
  if (result !== undefined) {
    if (idText === undefined) throw invalid("a result has no id", idText);
    checkedId(idText);
    if (result.charCodeAt(0) !== CHAR.openObject) throw invalid("result is not an object", idText);
    return { kind: "result", idText, resultText: result, resultFrom: spans.get("result")?.[0] ?? 0 };
  }
  if (error === undefined) throw invalid("it has no method, result or error", idText);
  if (error.charCodeAt(0) !== CHAR.openObject) throw invalid("error is not an object", idText);
  const errorFrom = spans.get("error")?.[0] ?? 0;
  if (idText === undefined || idText === "null") {
    return { kind: "error", idText: null, errorText: error, errorFrom };
  }
  checkedId(idText);
  return { kind: "error", idText, errorText: error, errorFrom };
}

/** What a message is, from as little of it as tells: the value of `result` or `error` is not looked at. */
export type MessageKind = Envelope["kind"];

/** For messages that were checked before, as those that we wrote. */
export function kindOf(text: string): MessageKind {
  let at = skipSpace(text, 0);
  if (text.charCodeAt(at) !== CHAR.openObject) throw notAnObject(text, at);
  let hasId = false;
  let hasMethod = false;
  at = skipSpace(text, at + 1);
  while (text.charCodeAt(at) === CHAR.quote) {
    const nameTo = skipString(text, at);
    const name = decodeString(text, at, nameTo);
    if (name === "result" || name === "error") return name;
    if (name === "id") hasId = true;
    else if (name === "method") hasMethod = true;
    if (hasId && hasMethod) return "request";
    at = skipSpace(text, skipValue(text, skipColon(text, nameTo), 1));
    if (text.charCodeAt(at) === CHAR.comma) at = skipSpace(text, at + 1);
  }
  if (!hasMethod) throw invalid("it has no method, result or error", undefined);
  return "notification";
}

/** The JSON-RPC code of what `readEnvelope` and `strictJson` throw. */
export function envelopeErrorCode(failure: Failure): number {
  return failure.kind === "parse_error" ? RPC_CODES.parseError : RPC_CODES.invalidRequest;
}

/** One spelling for each id, so that an id can be a key: `"a"` and `"\u0061"` are the same. */
export function idKeyOf(idText: string): string {
  if (idText.charCodeAt(0) === CHAR.quote) {
    return idText.includes("\\") ? JSON.stringify(JSON.parse(idText)) : idText;
  }
  if (/^-?(?:0|[1-9][0-9]*)$/.test(idText)) return idText === "-0" ? "0" : idText;
  return JSON.stringify(JSON.parse(idText));
}

export function requestText(idText: string, method: string, paramsText?: string): string {
  const head = `{"jsonrpc":"2.0","id":${idText},"method":${JSON.stringify(method)}`;
  return paramsText === undefined ? `${head}}` : `${head},"params":${paramsText}}`;
}

export function notificationText(method: string, paramsText?: string): string {
  const head = `{"jsonrpc":"2.0","method":${JSON.stringify(method)}`;
  return paramsText === undefined ? `${head}}` : `${head},"params":${paramsText}}`;
}

export function resultText(idText: string, result: string): string {
  return `{"jsonrpc":"2.0","id":${idText},"result":${result}}`;
}

/** A null id: the request could not be read. */
export function errorText(idText: string | null, code: number, message: string, data?: unknown): string {
  const error = JSON.stringify(data === undefined ? { code, message } : { code, message, data });
  return `{"jsonrpc":"2.0","id":${idText ?? "null"},"error":${error}}`;
}

function notAnObject(text: string, at: number): Failure {
  if (text.charCodeAt(at) !== CHAR.openArray) return faultAt(text, at, "a message");
  checkEnd(text, skipValue(text, at, 0));
  return invalid("batches are not taken", undefined);
}

function invalid(reason: string, idText: string | undefined): Failure<"invalid_request"> {
  const facts = idText === undefined || !isId(idText) ? {} : { facts: { id_text: idText } };
  return new Failure("invalid_request", `Cannot read message: ${reason}`, facts);
}

function isId(idText: string): boolean {
  const char = idText.charCodeAt(0);
  return char === CHAR.quote || char === 0x2d || (char >= 0x30 && char <= 0x39);
}

function checkedId(idText: string): string | number {
  if (!isId(idText)) throw invalid("id is neither a string nor a number", undefined);
  if (idText.length > ID_CHARS_MAX) throw invalid("its id is too long", undefined);
  return JSON.parse(idText) as string | number;
}

/** An id is kept for as long as its call runs. */
const ID_CHARS_MAX = 1_024;

function textAt(text: string, span: Span | undefined): string | undefined {
  return span === undefined ? undefined : text.slice(span[0], span[1]);
}

function stringAt(text: string, span: Span | undefined): string | undefined {
  if (span === undefined || text.charCodeAt(span[0]) !== CHAR.quote) return undefined;
  return decodeString(text, span[0], span[1]);
}
