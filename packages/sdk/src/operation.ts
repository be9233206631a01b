import { ROUTES, type Route, type RouteName } from "@capsem/api/plain";
import { concat, textOf, utf8 } from "@capsem/base";
import { CapsemError, errorOfAnswer } from "./error.ts";
import { withIdleLimit } from "./idle.ts";
import { ERROR_BYTES_MAX, JSON_BYTES_MAX, NO_TIMEOUT_MS, REQUEST_TIMEOUT_MS } from "./limits.ts";
import type { ByteSource, RequestOptions, Transport, TransportAnswer } from "./transport.ts";

type Table = typeof ROUTES;
type Output<S> = S extends { readonly _zod: { readonly output: infer O } } ? O : never;

type ParamsPart<R> = R extends { readonly params: infer S } ? { readonly params: Output<S> } : unknown;
type QueryPart<R> = R extends { readonly query: infer S }
  ? Record<never, never> extends Output<S>
    ? { readonly query?: Output<S> }
    : { readonly query: Output<S> }
  : unknown;
type BodyPart<R> = R extends { readonly request: "json"; readonly body: infer S }
  ? { readonly body: Output<S> }
  : R extends { readonly request: "bytes" }
    ? { readonly body: ByteSource }
    : unknown;

/** What a call of the route needs: its path parameters, query and body, typed by the route table. */
export type OperationInput<N extends RouteName> = ParamsPart<Table[N]> &
  QueryPart<Table[N]> &
  BodyPart<Table[N]>;
export type OperationResult<N extends RouteName> = Table[N] extends {
  readonly response: "json";
  readonly result: infer S;
}
  ? Output<S>
  : TransportAnswer;

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Overrides the default of the call. */
  readonly timeoutMs?: number;
  /**
   * What happens when a rule asks: `hold` (the default) keeps the call until a person has answered; `later` refuses it
   * at once with the `askId`, and the same call goes through once the ask was approved.
   */
  readonly asks?: "hold" | "later";
}

interface InnerOptions extends CallOptions {
  /** Length of a body that is a stream. */
  readonly bodyBytes?: number;
}

interface AnyInput {
  readonly params?: Readonly<Record<string, unknown>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
}

export type Operation<N extends RouteName> = (
  input: OperationInput<N>,
  options?: InnerOptions,
) => Promise<OperationResult<N>>;

/**
 * The one way to a route. Results are typed by the table and not checked again: the service is the trusted side,
 * and a newer one may add fields.
 */
export function operation<N extends RouteName>(transport: Transport, name: N): Operation<N> {
  const route: Route = ROUTES[name];
  const call = async (input: AnyInput, options: InnerOptions = {}): Promise<unknown> => {
    if (route.response !== "json") return await open(transport, name, input, options);
    const headers =
      route.request === "bytes"
        ? lengthOf(options.bodyBytes)
        : timeLeft(options.timeoutMs ?? REQUEST_TIMEOUT_MS);
    const answer = await open(transport, name, input, options, headers);
    return await readJson(answer, name, options.timeoutMs ?? REQUEST_TIMEOUT_MS);
  };
  return call as Operation<N>;
}

/** Sends the request and returns a good answer's head, its body unread. Any other status is thrown. */
export async function open(
  transport: Transport,
  name: RouteName,
  input: AnyInput,
  options: CallOptions = {},
  extra: Readonly<Record<string, string>> = {},
): Promise<TransportAnswer> {
  const route: Route = ROUTES[name];
  const { timeoutMs = REQUEST_TIMEOUT_MS } = options;
  const { headers: own = {}, ...body } = bodyOf(route, input.body);
  const answer = await transport.request(route.method, pathOf(name, input.params), {
    query: queryOf(input.query),
    ...body,
    headers: { ...own, ...extra, ...(options.asks === "later" ? { "x-capsem-asks": "later" } : {}) },
    ...(options.signal === undefined ? {} : { signal: options.signal }),
    timeoutMs,
    mutates: route.mutates,
  });
  if (answer.status >= 200 && answer.status < 300) return answer;
  const { status, headers } = answer;
  const text = await readText(answer, name, ERROR_BYTES_MAX, timeoutMs);
  throw errorOfAnswer({ status, headers, mutates: route.mutates }, text);
}

/**
 * How long the answer is waited for: an ask that nobody answers ends before it, with words, and no work goes on after
 * it. Not of a stream, where the limit is of its silence and not of its length, and not of a wait without a limit.
 */
function timeLeft(timeoutMs: number): Record<string, string> {
  return timeoutMs >= NO_TIMEOUT_MS ? {} : { [TIME_LEFT_HEADER]: String(Math.max(1, Math.floor(timeoutMs))) };
}

/** A browser counts by itself, and lets nobody say it. */
function lengthOf(bytes: number | undefined): Record<string, string> {
  return bytes === undefined ? {} : { "content-length": String(bytes) };
}

const TIME_LEFT_HEADER = "x-capsem-time-left-ms";

export function pathOf(name: RouteName, params: Readonly<Record<string, unknown>> = {}): string {
  return ROUTES[name].path.replace(/\{(\w+)\}/g, (_, word: string) => {
    const value = params[word];
    if (typeof value !== "string" || value === "")
      throw new CapsemError("invalid_input", `Cannot call ${name}: ${word} is missing`);
    return encodeURIComponent(value);
  });
}

function queryOf(query: Readonly<Record<string, unknown>> = {}): Record<string, string> {
  const words: Record<string, string> = {};
  for (const [key, value] of Object.entries(query)) if (value !== undefined) words[key] = String(value);
  return words;
}

function bodyOf(route: Route, body: unknown): Pick<RequestOptions, "body" | "headers"> {
  switch (route.request) {
    case "json":
      return { body: utf8(JSON.stringify(body ?? {})), headers: { "content-type": "application/json" } };
    case "bytes":
      return { body: body as ByteSource, headers: { "content-type": "application/octet-stream" } };
    case "none":
    case "websocket":
      return {};
  }
}

async function readJson(answer: TransportAnswer, name: RouteName, idleMs: number): Promise<unknown> {
  const text = await readText(answer, name, JSON_BYTES_MAX, idleMs);
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new CapsemError("internal", `Cannot read the answer of ${name}: it is not JSON`, { cause });
  }
}

/** An answer that stands still in its midst is one that does not come. */
async function readText(
  answer: TransportAnswer,
  name: RouteName,
  bytesMax: number,
  idleMs: number,
): Promise<string> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  const outcome = ROUTES[name].mutates ? "unknown" : "none";
  for await (const part of withIdleLimit(answer, idleMs, name, outcome)) {
    bytes += part.length;
    if (bytes > bytesMax)
      throw new CapsemError("too_large", `Cannot read answer: it is over ${bytesMax} bytes`);
    parts.push(part);
  }
  return textOf(concat(parts));
}
