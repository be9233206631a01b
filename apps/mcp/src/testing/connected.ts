import { Client } from "@modelcontextprotocol/client";
import { InMemoryTransport } from "@modelcontextprotocol/server";
import type { Calls } from "../call-tool.ts";
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

const never: Every = () => () => undefined;

/** The official client and our server in one process. */
export async function connect(calls: Calls, options: { timeoutMs?: number; every?: Every } = {}) {
  const { timeoutMs = 30_000, every = never } = options;
  const server = createServer(calls, { version: "0.0.0", timeoutMs, every });
  const client = new Client({ name: "test", version: "1" });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await server.connect(ours);
  await client.connect(theirs);
  // The client checks results against the output schemas that it has seen.
  await client.listTools();
  return connectedOf(client);
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
