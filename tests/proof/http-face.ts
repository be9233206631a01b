/** MCP servers behind Streamable HTTP, for suites that speak nothing else. No part of the product. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import {
  createMcpHandler,
  hostHeaderValidationResponse,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  originValidationResponse,
  type Server,
} from "@modelcontextprotocol/server";

export interface HttpFace {
  readonly url: string;
  stop(): Promise<void>;
}

/** What answers requests of the web platform's shape. */
export interface WebHandler {
  fetch(request: Request): Promise<Response>;
  close(): Promise<void>;
}

export async function startHttpFace(createMcpServer: () => Server): Promise<HttpFace> {
  const handler = createMcpHandler(() => createMcpServer());
  return startWebFace({
    fetch: async (request) =>
      hostHeaderValidationResponse(request, localhostAllowedHostnames()) ??
      originValidationResponse(request, localhostAllowedOrigins()) ??
      (await handler.fetch(request)),
    close: () => handler.close(),
  });
}

/** On loopback, any free port. A request whose client has left aborts. */
export async function startWebFace(handler: WebHandler): Promise<HttpFace> {
  const serve = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    const gone = new AbortController();
    outgoing.on("close", () => gone.abort());
    await send(await handler.fetch(toRequest(incoming, gone.signal)), outgoing);
  };
  const server = createServer((incoming, outgoing) => {
    serve(incoming, outgoing).catch(() => outgoing.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    stop: async () => {
      await handler.close();
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

function toRequest(incoming: IncomingMessage, signal: AbortSignal): Request {
  const headers = new Headers();
  for (let at = 0; at < incoming.rawHeaders.length; at += 2)
    headers.append(incoming.rawHeaders[at] ?? "", incoming.rawHeaders[at + 1] ?? "");
  const method = incoming.method ?? "GET";
  const body =
    method === "GET" || method === "HEAD" ? {} : { body: Readable.toWeb(incoming), duplex: "half" };
  return new Request(`http://${incoming.headers.host}${incoming.url}`, {
    method,
    headers,
    signal,
    ...body,
  } as RequestInit);
}

async function send(response: Response, outgoing: ServerResponse): Promise<void> {
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.flushHeaders();
  if (response.body !== null)
    for await (const chunk of response.body as ReadableStream<Uint8Array> & AsyncIterable<Uint8Array>)
      outgoing.write(chunk);
  outgoing.end();
}
