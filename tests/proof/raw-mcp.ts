/** A client of the handshake over Streamable HTTP that keeps what comes as text: what is compared byte for byte. */
import { Agent, request as ask, type IncomingMessage } from "node:http";
import { itemsOf, memberOf, membersOf } from "@capsem/mcp-protocol";

export interface RawClient {
  /** The `result` of an answer, as it was written. Throws what the server answers instead. */
  request(method: string, params?: object): Promise<string>;
  close(): void;
}

export interface RawTarget {
  readonly port: number;
  readonly path: string;
  /** The name and port that the server is asked by. */
  readonly host: string;
}

const ANSWER_TIMEOUT_MS = 60_000;
/** Servers list more to who can be asked. */
const ABLE = { sampling: {}, elicitation: { form: {}, url: {} }, roots: {} };
const HELLO = {
  protocolVersion: "2025-11-25",
  capabilities: ABLE,
  clientInfo: { name: "raw", version: "1" },
};

export async function openRawClient(target: RawTarget): Promise<RawClient> {
  // A connection each: a server ends one that rests, perhaps in the very moment when it is used again.
  const agent = new Agent({ keepAlive: false });
  const headers: Record<string, string> = {
    host: target.host,
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
  };
  let count = 0;
  const post = (message: object): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const { port, path } = target;
      const up = ask({ host: "localhost", port, path, method: "POST", headers, agent }, resolve);
      up.setTimeout(ANSWER_TIMEOUT_MS, () => up.destroy(new Error("no answer in time"))).on("error", reject);
      up.end(JSON.stringify({ jsonrpc: "2.0", ...message }));
    });
  const request = async (method: string, params?: object): Promise<string> => {
    count += 1;
    const id = count;
    const answer = await post({ id, method, ...(params === undefined ? {} : { params }) });
    const session = answer.headers["mcp-session-id"];
    if (typeof session === "string") headers["mcp-session-id"] = session;
    return resultOf(await messageOf(answer, id), method);
  };
  const hello = await request("initialize", HELLO);
  const revision = memberOf(hello, "protocolVersion");
  headers["mcp-protocol-version"] = JSON.parse(revision ?? '""') as string;
  (await post({ method: "notifications/initialized" })).resume();
  return { request, close: () => agent.destroy() };
}

function resultOf(message: string, method: string): string {
  const result = memberOf(message, "result");
  if (result === undefined) throw new Error(`${method} was answered with ${message.slice(0, 500)}`);
  return result;
}

/** The response of that id, from a body or from a stream of events. */
async function messageOf(answer: IncomingMessage, id: number): Promise<string> {
  const isStream = answer.headers["content-type"]?.startsWith("text/event-stream") === true;
  const chunks: Buffer[] = [];
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    if (!isStream) continue;
    const found = messagesOf(Buffer.concat(chunks).toString()).find(
      (message) => membersOf(message).get("id") === String(id),
    );
    if (found === undefined) continue;
    answer.destroy();
    return found;
  }
  const text = Buffer.concat(chunks).toString();
  if (isStream || answer.statusCode !== 200) throw new Error(`no answer: ${answer.statusCode} ${text}`);
  return text;
}

/** Of events that are whole. None of these servers writes a message over several lines. */
function messagesOf(stream: string): string[] {
  return stream
    .split(/\r?\n\r?\n/)
    .slice(0, -1)
    .flatMap((event) => /^data: ?(\{.*)$/m.exec(event)?.[1] ?? []);
}

/** The items of a list, page by page. */
export async function listAll(client: RawClient, method: string, key: string): Promise<string[]> {
  const items: string[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = membersOf(await client.request(method, cursor === undefined ? {} : { cursor }));
    items.push(...itemsOf(page.get(key) ?? "[]"));
    const next = page.get("nextCursor");
    if (next === undefined) return items;
    cursor = JSON.parse(next) as string;
  }
}
