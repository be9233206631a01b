// The official SDK's server on the loopback interface, of both eras; for tests.
import { randomUUID } from "node:crypto";
import {
  createMcpHandler,
  inputRequired,
  isLegacyRequest,
  type McpHttpHandler,
  Server,
  type ServerContext,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { type Asked, httpServer, type TestServer } from "./http-server.ts";

export interface SdkServer extends TestServer {
  /** Calls whose cancellation arrived. */
  readonly cancelled: string[];
  /** Meta of calls as the handler saw it. */
  readonly metas: unknown[];
  readonly sessions: ReadonlyMap<string, Server>;
  readonly modern: McpHttpHandler;
  /** All sessions of the handshake are forgotten. */
  forget(): void;
}

/** `both`: routed by what a request says; `legacy` knows no other. */
export async function sdkServer(
  eras: "both" | "legacy" | "modern",
  options: { json?: boolean } = {},
): Promise<SdkServer> {
  const cancelled: string[] = [];
  const metas: unknown[] = [];
  const make = () => newServer(cancelled, metas);
  const modern = createMcpHandler(make, { legacy: "reject", maxRequestBodySize: 32 * 1024 * 1024 });
  const sessions = new Map<string, Server>();
  const transports = new Map<string, WebStandardStreamableHTTPServerTransport>();
  const legacy = async (request: Request): Promise<Response> => {
    const id = request.headers.get("mcp-session-id");
    const known = id === null ? undefined : transports.get(id);
    if (known !== undefined) return known.handleRequest(request);
    if (id !== null) return new Response(null, { status: 404 });
    const server = make();
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      maxRequestBodySize: 32 * 1024 * 1024,
      enableJsonResponse: options.json === true,
      onsessioninitialized: (session) => {
        transports.set(session, transport);
        sessions.set(session, server);
      },
      onsessionclosed: (session) => {
        transports.delete(session);
        sessions.delete(session);
      },
    });
    await server.connect(transport);
    return transport.handleRequest(request);
  };
  const server = await httpServer(async (asked) => {
    const request = webRequest(asked);
    const isLegacy =
      eras === "legacy" || (eras === "both" && (await isLegacyRequest(request.clone() as Request)));
    await sendWeb(asked, await (isLegacy ? legacy(request) : modern.fetch(request)));
  });
  const forget = () => {
    transports.clear();
    sessions.clear();
  };
  return { ...server, cancelled, metas, sessions, modern, forget };
}

const text = (words: string) => ({ content: [{ type: "text" as const, text: words }] });

function newServer(cancelled: string[], metas: unknown[]): Server {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    logging: {},
  };
  const server = new Server(
    { name: "sdk", version: "2.0.0" },
    { capabilities, instructions: "Use it well", inputRequired: { legacyShim: false } },
  );
  const schema = { type: "object" as const };
  const names = ["echo", "gen", "wait", "progress", "elicit", "sample", "roots", "input"];
  server.setRequestHandler("tools/list", ({ params }) => {
    const from = Number(params?.cursor ?? 0);
    const tools = names
      .slice(from, from + 3)
      .map((name) => ({ name, description: name, inputSchema: schema }));
    const more = from + 3 < names.length ? { nextCursor: String(from + 3) } : {};
    return { tools, ...more };
  });
  server.setRequestHandler("resources/list", () => ({ resources: [{ uri: "test://a", name: "a" }] }));
  server.setRequestHandler("resources/templates/list", () => ({ resourceTemplates: [] }));
  server.setRequestHandler("resources/read", ({ params: { uri } }) => ({
    contents: [{ uri, text: "content" }],
  }));
  server.setRequestHandler("resources/subscribe", () => ({}));
  server.setRequestHandler("resources/unsubscribe", () => ({}));
  server.setRequestHandler("tools/call", async ({ params }, context) => {
    metas.push({ ...context.mcpReq._meta, ...context.mcpReq.envelope });
    return callTool(
      params.name,
      (params.arguments ?? {}) as Readonly<Record<string, unknown>>,
      context,
      cancelled,
    );
  });
  return server;
}

async function callTool(
  name: string,
  args: Readonly<Record<string, unknown>>,
  { mcpReq }: ServerContext,
  cancelled: string[],
) {
  switch (name) {
    case "echo":
      return text(String(args.message));
    case "gen":
      return text("x".repeat(Number(args.count)));
    case "wait":
      await new Promise<void>((resolve) => {
        mcpReq.signal.addEventListener("abort", () => {
          cancelled.push(String(args.name));
          resolve();
        });
      });
      return text("waited");
    case "progress":
      for (const progress of [1, 2, 3]) {
        const progressToken = mcpReq._meta?.progressToken;
        if (progressToken === undefined) continue;
        await mcpReq.notify({
          method: "notifications/progress",
          params: { progressToken, progress, total: 3 },
        });
      }
      return text("done");
    case "elicit": {
      const requestedSchema = { type: "object" as const, properties: { name: { type: "string" as const } } };
      const answer = await mcpReq.elicitInput({ mode: "form", message: "Who?", requestedSchema });
      return text(JSON.stringify(answer));
    }
    case "sample": {
      const messages = [{ role: "user" as const, content: { type: "text" as const, text: "hi" } }];
      const answer = await mcpReq.requestSampling({ messages, maxTokens: 10 });
      return text(JSON.stringify(answer.content));
    }
    case "roots":
      return text(JSON.stringify(await mcpReq.send({ method: "roots/list" })));
    case "input": {
      if (mcpReq.inputResponses !== undefined) return text(JSON.stringify(mcpReq.inputResponses));
      const requestedSchema = { type: "object" as const, properties: { name: { type: "string" as const } } };
      return inputRequired({
        inputRequests: { who: inputRequired.elicit({ message: "Who?", requestedSchema }) },
        requestState: "state",
      });
    }
    default:
      throw new Error(`no tool ${name}`);
  }
}

function webRequest({ request, response, text: body }: Asked): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    if (typeof value === "string") headers.set(name, value);
  }
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  return new Request(`http://${request.headers.host}${request.url}`, {
    method: request.method ?? "GET",
    headers,
    signal: gone.signal,
    ...(request.method === "POST" ? { body } : {}),
  });
}

async function sendWeb({ response }: Asked, answer: Response): Promise<void> {
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.flushHeaders();
  if (answer.body === null) {
    response.end();
    return;
  }
  const reader = answer.body.getReader();
  response.on("close", () => void reader.cancel().catch(() => undefined));
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) response.write(next.value);
  } catch {
    response.destroy();
    return;
  }
  response.end();
}
