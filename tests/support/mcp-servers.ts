/** Tool servers on the loopback interface, written with the official SDK. */
import { randomUUID } from "node:crypto";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import {
  createMcpHandler,
  isLegacyRequest,
  Server,
  type ServerContext,
  type Tool,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";

/** `both` is told apart by what a request says; `legacy` keeps sessions; `modern` knows no handshake. */
export type Eras = "both" | "legacy" | "modern";

export interface ToolServer {
  readonly url: string;
  /** What a declaration grants of it. */
  readonly grant: string;
  /** Calls that reached it, in order. */
  readonly calls: { readonly tool: string; readonly args: Readonly<Record<string, unknown>> }[];
  /** URIs that were read. */
  readonly reads: string[];
  /** Calls of `wait` whose cancellation reached it. */
  readonly cancelled: string[];
  /** What it answered, as it left. */
  readonly sent: string[];
  /** Ends calls of `wait` with that name. */
  release(name: string): void;
  /** Of each request, newest last. */
  readonly headers: IncomingHttpHeaders[];
  /** How often a client began with it. */
  readonly handshakes: () => number;
  /** What it says of its tools now: change it at will. */
  readonly tools: Map<string, Tool>;
  /** What the tool `say` says. */
  words: string;
  /** Tells every session that the list is another one. */
  tellChanged(): Promise<void>;
  close(): Promise<void>;
}

export const NOTES: Readonly<Record<string, string>> = {
  "note://open": "an open note",
  "note://closed": "a closed note",
};
/** As a result holds it: spelling and order are the server's own. */
export const STRUCTURED = {
  content: [{ type: "text" as const, text: '{"n":1}', annotations: { audience: ["user" as const] } }],
  structuredContent: { zeta: [1, { deep: null }], n: 1, alpha: "é\u2028" },
  _meta: { "example.com/second": 2, "example.com/first": { kept: true } },
};

export function toolOf(name: string, description = `The tool ${name}`): Tool {
  return { name, description, inputSchema: { type: "object" as const } };
}
const NAMES = ["echo", "say", "wait", "fail", "structured"];

interface State {
  readonly server: Omit<ToolServer, "url" | "grant" | "close" | "tellChanged" | "handshakes" | "release">;
  /** Of calls of `wait` that run. */
  readonly releases: Map<string, () => void>;
  handshakes: number;
}

/** On `port`, or any that is free. */
export async function startToolServer(eras: Eras, port = 0): Promise<ToolServer> {
  const tools = new Map(NAMES.map((name) => [name, toolOf(name)]));
  const server: State["server"] = {
    ...{ calls: [], reads: [], cancelled: [], sent: [], headers: [], tools, words: "nothing to say" },
  };
  const state: State = { server, releases: new Map(), handshakes: 0 };
  const modern = createMcpHandler(() => newServer(state), { legacy: "reject" });
  const sessions = new Map<string, Session>();
  const listener = createServer((request, response) => {
    server.headers.push(request.headers);
    void answer(request, response, server.sent, async (asked) => {
      const isLegacy =
        eras === "legacy" || (eras === "both" && (await isLegacyRequest(asked.clone() as Request)));
      return isLegacy ? legacyAnswer(asked, sessions, state) : modern.fetch(asked);
    });
  });
  await new Promise<void>((done) => listener.listen(port, "127.0.0.1", () => done()));
  const { port: bound } = listener.address() as AddressInfo;
  return Object.assign(server, {
    url: `http://127.0.0.1:${bound}/mcp`,
    grant: `127.0.0.1:${bound}`,
    handshakes: () => state.handshakes,
    release: (name: string) => state.releases.get(name)?.(),
    tellChanged: async () => {
      modern.notify.toolsChanged();
      await Promise.all([...sessions.values()].map((each) => each.server.sendToolListChanged()));
    },
    close: () =>
      new Promise<void>((done) => {
        listener.closeAllConnections();
        listener.close(() => done());
      }),
  });
}

interface Session {
  readonly server: Server;
  readonly transport: WebStandardStreamableHTTPServerTransport;
}

async function legacyAnswer(asked: Request, sessions: Map<string, Session>, state: State): Promise<Response> {
  const id = asked.headers.get("mcp-session-id");
  const known = id === null ? undefined : sessions.get(id);
  if (known !== undefined) return known.transport.handleRequest(asked);
  if (id !== null) return new Response(null, { status: 404 });
  const server = newServer(state);
  const transport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (session) => {
      state.handshakes += 1;
      sessions.set(session, { server, transport });
    },
    onsessionclosed: (session) => void sessions.delete(session),
  });
  await server.connect(transport);
  return transport.handleRequest(asked);
}

function newServer(state: State): Server {
  const { server: own } = state;
  const capabilities = { tools: { listChanged: true }, resources: {}, prompts: {} };
  const server = new Server({ name: "tests", version: "1.0.0" }, { capabilities });
  server.setRequestHandler("tools/list", () => ({ tools: [...own.tools.values()] }));
  server.setRequestHandler("tools/call", async ({ params }, context) => {
    const args = (params.arguments ?? {}) as Readonly<Record<string, unknown>>;
    own.calls.push({ tool: params.name, args });
    return callTool(params.name, args, context, state);
  });
  server.setRequestHandler("resources/list", () => ({
    resources: Object.keys(NOTES).map((uri) => ({ uri, name: uri })),
  }));
  server.setRequestHandler("resources/templates/list", () => ({ resourceTemplates: [] }));
  server.setRequestHandler("resources/read", ({ params: { uri } }) => {
    own.reads.push(uri);
    return { contents: [{ uri, text: NOTES[uri] ?? "" }] };
  });
  server.setRequestHandler("prompts/list", () => ({
    prompts: [{ name: "greet", description: "Greets somebody", arguments: [{ name: "who" }] }],
  }));
  server.setRequestHandler("prompts/get", ({ params }) => ({
    messages: [
      { role: "user" as const, content: { type: "text" as const, text: `Greet ${params.arguments?.who}` } },
    ],
  }));
  return server;
}

const text = (words: string) => ({ content: [{ type: "text" as const, text: words }] });

async function callTool(
  name: string,
  args: Readonly<Record<string, unknown>>,
  { mcpReq }: ServerContext,
  { server: own, releases }: State,
) {
  switch (name) {
    case "say":
      return text(own.words);
    case "wait": {
      const label = String(args.name);
      await new Promise<void>((resolve) => {
        releases.set(label, resolve);
        mcpReq.signal.addEventListener("abort", () => {
          own.cancelled.push(label);
          resolve();
        });
      });
      return text(`waited ${label}`);
    }
    case "fail":
      return { ...text("it did not work"), isError: true };
    case "structured":
      return STRUCTURED;
    default:
      return text(String(args.text));
  }
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  sent: string[],
  serve: (asked: Request) => Promise<Response>,
): Promise<void> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of request) chunks.push(chunk as Buffer);
  } catch {
    return;
  }
  response.on("error", () => undefined);
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const headers = Object.entries(request.headers).filter(
    (entry): entry is [string, string] => typeof entry[1] === "string",
  );
  const method = request.method ?? "GET";
  const body = method === "POST" ? { body: Buffer.concat(chunks) } : {};
  const asked = new Request(`http://${request.headers.host}${request.url}`, {
    ...{ method, headers, signal: gone.signal, ...body },
  });
  const given = await serve(asked);
  response.writeHead(given.status, Object.fromEntries(given.headers));
  response.flushHeaders();
  const reader = given.body?.getReader();
  response.on("close", () => void reader?.cancel().catch(() => undefined));
  try {
    for (let next = await reader?.read(); next?.done === false; next = await reader?.read()) {
      sent.push(Buffer.from(next.value).toString("utf8"));
      response.write(next.value);
    }
    response.end();
  } catch {
    response.destroy();
  }
}
