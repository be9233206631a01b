import { mkdirSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { join } from "node:path";
import {
  apiFailure,
  ERRORS,
  ROUTES,
  type RouteName,
  type StreamClientMessage,
  toApiFailure,
} from "@capsem/api";
import { WebSocketServer } from "ws";
import { type Call, callerOf, HANDLERS, vmOf } from "./fixture-handlers.ts";
import { FixtureState } from "./fixture-state.ts";
import { serveStream } from "./fixture-stream.ts";

export interface FixtureOptions {
  /** A folder of the test's own; `run/service.sock` in it is the socket. */
  readonly home: string;
  /** May answer a request by itself, or break its connection. True: it did. */
  readonly intercept?: (request: IncomingMessage, response: ServerResponse) => boolean;
}

export interface FixtureService {
  readonly home: string;
  readonly socketPath: string;
  readonly state: FixtureState;
  /** Method and path of each request, and each message of a stream. */
  readonly seen: string[];
  readonly connections: Set<Socket>;
  close(): Promise<void>;
}

/** A service of the route table for tests of its clients: commands run on this host, in a folder per VM. */
export async function startFixtureService(options: FixtureOptions): Promise<FixtureService> {
  const run = join(options.home, "run");
  mkdirSync(run, { recursive: true });
  const state = new FixtureState(join(options.home, "workspaces"));
  const seen: string[] = [];
  const connections = new Set<Socket>();
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    if (options.intercept?.(request, response) === true) return;
    void answer(state, request, response);
  });
  server.on("connection", (socket) => {
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  serveSockets(server, state, seen);
  const socketPath = join(run, "service.sock");
  // Through the working folder, because a long path would be cut silently.
  const before = process.cwd();
  process.chdir(run);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen("service.sock", resolve);
    process.chdir(before);
  });
  const close = async () => {
    state.clear();
    for (const socket of connections) socket.destroy();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return { home: options.home, socketPath, state, seen, connections, close };
}

async function answer(
  state: FixtureState,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  try {
    const url = new URL(request.url ?? "/", "http://localhost");
    const { name, params } = match(request.method ?? "", url.pathname);
    const handler = HANDLERS[name];
    if (handler === undefined) throw apiFailure("route_not_found", `Cannot serve ${name} here`);
    const call: Call = {
      state,
      params,
      query: url.searchParams,
      request,
      response,
      json: () => readJson(request),
    };
    const result = await handler(call);
    if (result === undefined) return;
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(result));
  } catch (thrown) {
    const { status, body } = refusal(thrown);
    if (response.headersSent) response.destroy();
    else response.writeHead(status).end(body);
  }
}

function refusal(thrown: unknown): { status: number; body: string } {
  const { kind, message: reason, retryable, facts } = toApiFailure(thrown);
  const { status } = ERRORS[kind];
  return { status, body: JSON.stringify({ error: { ...facts, kind, reason, status, retryable } }) };
}

function match(method: string, path: string): { name: RouteName; params: Record<string, string> } {
  for (const [name, route] of Object.entries(ROUTES)) {
    const pattern = new RegExp(`^${route.path.replace(/\{(\w+)\}/g, "(?<$1>[^/]+)")}$`);
    const found = route.method === method ? pattern.exec(path) : null;
    if (found === null) continue;
    const params = Object.entries(found.groups ?? {}).map(([word, text]) => [word, decodeURIComponent(text)]);
    return { name: name as RouteName, params: Object.fromEntries(params) };
  }
  throw apiFailure("route_not_found", `Cannot find route ${method} ${path}`);
}

function serveSockets(server: Server, state: FixtureState, seen: string[]): void {
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: ([first]) => first ?? false });
  server.on("upgrade", (request, socket, head) => {
    seen.push(`UPGRADE ${request.url}`);
    try {
      const { name, params } = match("GET", request.url ?? "");
      if (name === "events") {
        sockets.handleUpgrade(request, socket, head, (web) => {
          web.once(
            "close",
            state.follow((event) => web.send(JSON.stringify(event))),
          );
        });
        return;
      }
      const vm = vmOf({ state, params });
      const log = (message: StreamClientMessage) => seen.push(`STREAM ${message.type}`);
      sockets.handleUpgrade(request, socket, head, (web) => {
        const left = new AbortController();
        web.once("close", () => left.abort());
        serveStream(state, vm, web, callerOf(request, left.signal), log);
      });
    } catch (thrown) {
      const { status, body } = refusal(thrown);
      const line = `HTTP/1.1 ${status} Refused\r\ncontent-length: ${Buffer.byteLength(body)}`;
      socket.end(`${line}\r\nconnection: close\r\n\r\n${body}`);
    }
  });
}

async function readJson(request: IncomingMessage): Promise<Record<string, unknown>> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return JSON.parse(Buffer.concat(parts).toString("utf8")) as Record<string, unknown>;
}
