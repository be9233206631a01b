import { concat, Failure, writeU32 } from "@capsem/base";
import { decodeMessagePack, encodeMessagePackParts, type MuxStream } from "@capsem/wire";
import * as z from "zod";
import { RPC_LIMITS } from "./limits.ts";

/** Above this a copy costs more than a second frame. */
const JOINED_BYTES_MAX = 16_384;

export interface Request {
  readonly timeLeftMs?: number | undefined;
  readonly trace?: string | undefined;
  /** Whether the caller expects the stream to stay open. */
  readonly stream: boolean;
  /** Absent for undefined, which MessagePack does not have. */
  readonly params?: unknown;
}
const REQUEST_MEMBERS: ReadonlySet<string> = new Set(["timeLeftMs", "trace", "stream", "params"]);

/** What is said of a refusal beside its words, and nothing else: the other end may be anybody's. */
const fact = z.string().max(RPC_LIMITS.factCharactersMax).optional();
const facts = z.strictObject({ rule_id: fact, ask_id: fact });
type Facts = z.infer<typeof facts>;

const answer = z.union([
  z.strictObject({
    error: z.strictObject({
      kind: z.string().min(1).max(64),
      message: z.string().max(RPC_LIMITS.errorMessageCharactersMax),
      retryable: z.boolean(),
      facts: facts.optional(),
    }),
  }),
  z.strictObject({ ok: z.unknown().optional() }),
]);
export type Answer = z.infer<typeof answer>;

/** By hand: this is once for each call. */
export function parseRequest(bytes: Uint8Array): Request {
  const value = decodeMessagePack(bytes);
  if (isRequest(value)) return value;
  throw new Failure("bad_message", "Cannot parse request: it has another shape");
}

function isRequest(value: unknown): value is Request {
  if (!isMembers(value)) return false;
  for (const name of Object.keys(value)) if (!REQUEST_MEMBERS.has(name)) return false;
  const { timeLeftMs, trace, stream } = value;
  const hasTime = typeof timeLeftMs === "number" && timeLeftMs > 0 && Number.isFinite(timeLeftMs);
  if (timeLeftMs !== undefined && !hasTime) return false;
  const hasTrace = typeof trace === "string" && trace.length <= RPC_LIMITS.traceCharactersMax;
  return (trace === undefined || hasTrace) && typeof stream === "boolean";
}

export function parseAnswer(bytes: Uint8Array): Answer {
  const value = decodeMessagePack(bytes);
  if (isMembers(value) && Object.keys(value).every((name) => name === "ok")) return value as Answer;
  const parsed = answer.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Failure("bad_message", "Cannot parse answer: it has another shape", { cause: parsed.error });
}

function isMembers(value: unknown): value is Readonly<Record<string, unknown>> {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array)
  );
}

/** `[u32 length][MessagePack]`, in parts. Throws Failure("too_large") before a byte is sent. */
export function encodeMessage(message: Request | Answer): readonly Uint8Array[] {
  const body = encodeMessagePackParts(message);
  let bytes = 0;
  for (const part of body) bytes += part.length;
  if (bytes > RPC_LIMITS.messageBytesMax) {
    const limit = RPC_LIMITS.messageBytesMax;
    throw new Failure("too_large", `Cannot send message: ${bytes} bytes, more than ${limit}`);
  }
  const length = new Uint8Array(4);
  writeU32(length, 0, bytes);
  const [first = length, ...rest] = body;
  return first.length <= JOINED_BYTES_MAX ? [concat([length, first]), ...rest] : [length, ...body];
}

/** Queued at once, so that an `end` right behind it leaves in the same system call. */
export function writeParts(stream: MuxStream, parts: readonly Uint8Array[]): Promise<unknown> {
  const [only] = parts;
  if (only !== undefined && parts.length === 1) return stream.write(only);
  return Promise.all(parts.map((part) => stream.write(part)));
}

/** What the caller may see of anything that was thrown: no stack, no cause, no detail. */
export function answerOf(thrown: unknown): Answer {
  if (!(thrown instanceof Failure)) {
    return { error: { kind: "internal", message: "Cannot answer call: internal error", retryable: false } };
  }
  const message = thrown.message.slice(0, RPC_LIMITS.errorMessageCharactersMax);
  const said = factsOf(thrown);
  const { kind, retryable } = thrown;
  return { error: { kind, message, retryable, ...(said === null ? {} : { facts: said }) } };
}

function factsOf({ facts: { rule_id, ask_id } = {} }: Failure): Facts | null {
  const said: Facts = {};
  if (typeof rule_id === "string") said.rule_id = rule_id.slice(0, RPC_LIMITS.factCharactersMax);
  if (typeof ask_id === "string") said.ask_id = ask_id.slice(0, RPC_LIMITS.factCharactersMax);
  return said.rule_id === undefined && said.ask_id === undefined ? null : said;
}
