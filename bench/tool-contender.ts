/** One way to a tool server, ready to be called: what is measured beside the others. */
export interface Contender {
  readonly name: string;
  /** The text of the tool's answer. Throws where the call was refused or lost. */
  call(tool: string, args: object): Promise<string>;
  /** Its server counts what it runs. */
  readonly isCounted: boolean;
  /** Its own processes: neither the client's nor the server's. */
  readonly pids: readonly number[];
  stop(): Promise<void>;
}

/** What a client sends and gets: one message each, by id. */
export interface Link {
  request(method: string, params: object): Promise<unknown>;
  notify(method: string): Promise<void>;
}

const HELLO = {
  protocolVersion: "2025-11-25",
  capabilities: {},
  clientInfo: { name: "bench", version: "1" },
};

export async function shakeHands(link: Link): Promise<void> {
  await link.request("initialize", HELLO);
  await link.notify("notifications/initialized");
}

/** The one text of a result. */
export function textOf(result: unknown): string {
  const { content, isError } = result as { content?: { type: string; text?: string }[]; isError?: boolean };
  const text = content?.[0]?.text;
  if (isError === true || text === undefined) throw new Error(`the tool failed: ${text?.slice(0, 200)}`);
  return text;
}

/** An answer's `result`; throws its `error`. */
export function resultOf(answer: unknown): unknown {
  const { result, error } = answer as { result?: unknown; error?: { code: number; message: string } };
  if (error !== undefined) throw new Error(`${error.code} ${error.message.slice(0, 200)}`);
  return result;
}
