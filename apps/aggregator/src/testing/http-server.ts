// Servers on the loopback interface that do as a test says.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

export interface Asked {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly text: string;
  /** The message of a POST, when it is one. */
  readonly message: Message;
}
export interface Message {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: unknown;
  readonly error?: unknown;
}

export interface TestServer {
  readonly url: string;
  readonly server: Server;
  /** Messages that came, in order. */
  readonly messages: Message[];
  /** Of requests that the server had: method and headers. */
  readonly requests: { readonly method: string; readonly headers: IncomingMessage["headers"] }[];
  close(): Promise<void>;
}

export async function httpServer(serve: (asked: Asked) => unknown, port = 0): Promise<TestServer> {
  const messages: Message[] = [];
  const requests: TestServer["requests"] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("error", () => undefined);
    response.on("error", () => undefined);
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const text = Buffer.concat(chunks).toString("utf8");
      const message = messageOf(text);
      requests.push({ method: request.method ?? "", headers: request.headers });
      if (request.method === "POST") messages.push(message);
      serve({ request, response, text, message });
    });
  });
  await new Promise<void>((done) => server.listen(port, "127.0.0.1", () => done()));
  const close = () =>
    new Promise<void>((done) => {
      server.closeAllConnections();
      server.close(() => done());
    });
  onTestFinished(close);
  const address = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${address.port}/mcp`, server, messages, requests, close };
}

function messageOf(text: string): Message {
  try {
    return JSON.parse(text) as Message;
  } catch {
    return {};
  }
}

export function sendJson(
  response: ServerResponse,
  value: unknown,
  headers: Record<string, string> = {},
): void {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  response.writeHead(200, { "content-type": "application/json", ...headers }).end(text);
}

/** An event stream that is open. */
export function sendEvents(response: ServerResponse, headers: Record<string, string> = {}) {
  response.writeHead(200, { "content-type": "text/event-stream", ...headers });
  response.flushHeaders();
  return {
    event(value: unknown, fields: { id?: string; event?: string } = {}) {
      const data = typeof value === "string" ? value : JSON.stringify(value);
      const id = fields.id === undefined ? "" : `id: ${fields.id}\n`;
      const event = fields.event === undefined ? "" : `event: ${fields.event}\n`;
      response.write(`${event}${id}data: ${data}\n\n`);
    },
    raw: (text: string) => response.write(text),
    end: () => response.end(),
  };
}

export function initializeResult(message: Message, more: Readonly<Record<string, unknown>> = {}) {
  return {
    jsonrpc: "2.0",
    id: message.id,
    result: {
      protocolVersion: "2025-11-25",
      capabilities: { tools: { listChanged: true } },
      serverInfo: { name: "test", version: "1" },
      ...more,
    },
  };
}

/**
 * What a server of the handshake answers to all that belongs to no test: initialize (with a session), notifications,
 * 405 on GET, 400 for the newest revision. True: it was answered.
 */
export function plainHandshake({ request, response, message }: Asked, sessionId?: string): boolean {
  if (request.method === "GET" || request.method === "DELETE") {
    response.writeHead(405).end();
    return true;
  }
  if (message.method === "server/discover") {
    response.writeHead(400).end("unknown method");
    return true;
  }
  if (message.method === "initialize") {
    sendJson(
      response,
      initializeResult(message),
      sessionId === undefined ? {} : { "mcp-session-id": sessionId },
    );
    return true;
  }
  if (message.id === undefined) {
    response.writeHead(202).end();
    return true;
  }
  return false;
}

/** The progress token of a call, as the server got it. */
export function tokenOf(message: Message | undefined): unknown {
  return (message?.params?._meta as { progressToken?: unknown } | undefined)?.progressToken;
}
