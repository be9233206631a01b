import {
  Client,
  type ClientCapabilities,
  type ElicitRequestFormParams,
  type ElicitResult,
} from "@modelcontextprotocol/client";
import { InMemoryTransport } from "@modelcontextprotocol/server";
import type { Calls } from "../attempt.ts";
import { type JSONRPCMessage, serveStdio } from "../mcp-sdk.ts";
import type { Every } from "../progress.ts";
import { createServer } from "../server.ts";
import type { FailureObject } from "../tool-failure.ts";
import { ERROR_META_KEY } from "../tool-result.ts";

export interface CallResult {
  readonly content: readonly { readonly type: string; readonly text?: string }[];
  readonly structuredContent?: Record<string, unknown>;
  readonly isError?: boolean;
  readonly _meta?: Record<string, unknown>;
}

export interface Connected {
  readonly client: Client;
  /** The result as the official client gives it, which has checked it against the tool's output schema. */
  call(name: string, args?: Record<string, unknown>, options?: CallSettings): Promise<CallResult>;
  /** Of a call that works. */
  value<T>(name: string, args?: Record<string, unknown>): Promise<T>;
  /** Of a call that fails: the object, which is the same in the text and in _meta. */
  failure(name: string, args?: Record<string, unknown>): Promise<FailureObject>;
  close(): Promise<void>;
}

export interface CallSettings {
  readonly signal?: AbortSignal;
  readonly onprogress?: (progress: { progress: number }) => void;
}

const stateKey = () => new Uint8Array(32);
const never: Every = () => () => undefined;

/** The official client and our server in one process. */
export async function connect(calls: Calls, options: { timeoutMs?: number; every?: Every } = {}) {
  const { timeoutMs = 30_000, every = never } = options;
  const server = createServer(calls, { version: "0.0.0", timeoutMs, every, stateKey });
  const client = new Client({ name: "test", version: "1" });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await server.connect(ours);
  await client.connect(theirs);
  // The client checks results against the output schemas that it has seen.
  await client.listTools();
  return connectedOf(client);
}

export const ERAS = ["2025-11-25", "2026-07-28"] as const;
export type Era = (typeof ERAS)[number];

export interface Person {
  readonly era: Era;
  /** What the client declares; without it, that it has forms. */
  readonly elicitation?: ClientCapabilities["elicitation"] | null;
  /** What its user does with a form. */
  readonly answers?: (form: ElicitRequestFormParams) => ElicitResult | Promise<ElicitResult>;
  readonly name?: string;
  readonly timeoutMs?: number;
  readonly stateKey?: () => Uint8Array;
}

/** The official client with a person before it, and our server as the program serves it, in one process. */
export async function connectPerson(calls: Calls, person: Person): Promise<Connected> {
  const { era, elicitation = { form: {} }, answers, name = "test", timeoutMs = 30_000 } = person;
  const options = { version: "0.0.0", timeoutMs, every: never, stateKey: person.stateKey ?? stateKey };
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  serveStdio(() => createServer(calls, options), { transport: ours });
  const client = new Client(
    { name, version: "1" },
    {
      capabilities: elicitation === null ? {} : { elicitation },
      ...(era === "2026-07-28" ? { versionNegotiation: { mode: { pin: era } } } : {}),
    },
  );
  if (answers !== undefined)
    client.setRequestHandler("elicitation/create", ({ params }) =>
      answers(params as ElicitRequestFormParams),
    );
  await client.connect(theirs);
  await client.listTools();
  return connectedOf(client);
}

export type Message = Readonly<Record<string, unknown>>;

/** One call of a client that speaks an older revision, in messages; `answer` is what it answers to the form. */
export async function callInRevision(
  calls: Calls,
  protocolVersion: string,
  params: Message,
  answer: Message,
): Promise<{ form: Message; result: CallResult }> {
  const options = { version: "0.0.0", timeoutMs: 30_000, every: never, stateKey };
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  serveStdio(() => createServer(calls, options), { transport: ours });
  const send = (message: Message) => theirs.send({ jsonrpc: "2.0", ...message } as JSONRPCMessage);
  let form: Message = {};
  const called = new Promise<CallResult>((resolve) => {
    theirs.onmessage = (message) => {
      if ("method" in message && "id" in message) {
        form = message.params ?? {};
        void send({ id: message.id, ...answer });
      } else if ("result" in message && message.id === "call")
        resolve(message.result as unknown as CallResult);
    };
  });
  await theirs.start();
  const clientInfo = { name: "old", version: "1" };
  const capabilities = { elicitation: {} };
  await send({ id: "hello", method: "initialize", params: { protocolVersion, capabilities, clientInfo } });
  await send({ method: "notifications/initialized" });
  await send({ id: "call", method: "tools/call", params });
  const result = await called;
  await theirs.close();
  return { form, result };
}

export function connectedOf(client: Client): Connected {
  const call: Connected["call"] = async (name, args = {}, settings = {}) =>
    (await client.callTool({ name, arguments: args }, { ...settings })) as CallResult;
  return {
    client,
    call,
    value: async <T>(name: string, args?: Record<string, unknown>) => {
      const result = await call(name, args);
      if (result.isError === true) throw new Error(result.content[0]?.text);
      return result.structuredContent as T;
    },
    failure: async (name, args) => failureIn(await call(name, args)),
    close: () => client.close(),
  };
}

/** Checks the form that every failure has. */
export function failureIn(result: CallResult): FailureObject {
  const text = result.content[0]?.text ?? "";
  if (result.isError !== true) throw new Error(`the call worked: ${text}`);
  if (result.structuredContent !== undefined) throw new Error("a failure has structuredContent");
  if (text.includes("\n")) throw new Error("a failure's text is more than one line");
  const { error } = JSON.parse(text) as { error: FailureObject };
  if (JSON.stringify(error) !== JSON.stringify(result._meta?.[ERROR_META_KEY]))
    throw new Error("a failure's text and _meta differ");
  return error;
}
