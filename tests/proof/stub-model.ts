/**
 * A stub of three model APIs on loopback. It is no model: its first turn asks for one tool, its second repeats what
 * the tool said. So a real agent CLI makes one real tools/call without an account or a network.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { answerMessages } from "./stub-anthropic.ts";
import { answerContents } from "./stub-gemini.ts";
import { answerResponses } from "./stub-openai.ts";
import type { StubAnswer, StubPlan, StubTurn } from "./stub-plan.ts";

export interface StubModel {
  readonly url: string;
  /** All turns so far, oldest first. */
  readonly turns: readonly StubTurn[];
  stop(): Promise<void>;
}

/** `record` is told of each turn. */
export async function startStubModel(
  plan: StubPlan,
  record: (turn: StubTurn) => void = () => undefined,
): Promise<StubModel> {
  const turns: StubTurn[] = [];
  const take = (turn: StubTurn) => {
    turns.push(turn);
    record(turn);
  };
  const server = createServer((request, response) => {
    answer(request, response, plan, take).catch((cause: unknown) => {
      response.writeHead(400, { "content-type": "application/json" });
      response.end(JSON.stringify({ error: { type: "invalid_request_error", message: String(cause) } }));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    turns,
    stop: async () => {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  plan: StubPlan,
  take: (turn: StubTurn) => void,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
  const { pathname, searchParams } = new URL(request.url ?? "/", "http://stub");
  if (request.method !== "POST") return sendJson(response, { data: [], models: [] });
  if (pathname.endsWith("/count_tokens")) return sendJson(response, { input_tokens: 1 });
  const reply = turnOf(pathname, searchParams, Buffer.concat(chunks), plan);
  if (reply === null) {
    response.writeHead(404, { "content-type": "application/json" });
    response.end('{"error":{"message":"not here"}}');
    return;
  }
  take(reply.turn);
  if ("json" in reply.body) return sendJson(response, reply.body.json);
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
  for (const [name, data] of reply.body.events)
    response.write(`${name === null ? "" : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`);
  response.end();
}

function turnOf(path: string, query: URLSearchParams, bytes: Buffer, plan: StubPlan): StubAnswer | null {
  const body = (): unknown => JSON.parse(bytes.toString("utf8"));
  if (path.endsWith("/v1/messages")) return answerMessages(body(), plan);
  if (path.endsWith("/responses")) return answerResponses(body(), plan);
  if (/:(generateContent|streamGenerateContent)$/.test(path))
    return answerContents(body(), plan, query.get("alt") === "sse");
  return null;
}

function sendJson(response: ServerResponse, body: unknown): void {
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}
