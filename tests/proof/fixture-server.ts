/** A server with what the conformance suite calls by name, on the official SDK, of both eras, over Streamable HTTP. */
import { randomUUID } from "node:crypto";
import {
  createMcpHandler,
  type EventStore,
  fromJsonSchema,
  hostHeaderValidationResponse,
  isLegacyRequest,
  type JSONRPCMessage,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  McpServer,
  originValidationResponse,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { INPUT_TOOLS, stateCodec } from "./fixture-input.ts";
import { offerPrompts, offerResources } from "./fixture-offers.ts";
import { type FixtureTool, object, PLAIN_TOOLS, text } from "./fixture-tools.ts";
import { type HttpFace, startWebFace } from "./http-face.ts";

/** What appears in the lists and goes again, each time that a trigger is called. */
export const SHOWN = { tool: "test_sometimes_tool", prompt: "test_sometimes_prompt" } as const;

interface Lists {
  readonly shows: { tool: boolean; prompt: boolean };
  /** Turns one over, and tells everybody who listens. */
  turn(what: keyof typeof SHOWN): void;
}

interface FixtureServer {
  readonly server: McpServer;
  /** Tells its own client where something changes. */
  show(shows: Lists["shows"]): void;
}

function newServer(lists: Lists): FixtureServer {
  const server = new McpServer(
    { name: "conformance-fixture", version: "1.0.0" },
    {
      capabilities: { tools: { listChanged: true }, prompts: { listChanged: true }, logging: {} },
      requestState: { verify: stateCodec.verify },
    },
  );
  const trigger = (what: keyof typeof SHOWN): FixtureTool => ({
    schema: object(),
    call: () => {
      lists.turn(what);
      return text(`turned ${what}`);
    },
  });
  const tools = {
    ...{ ...PLAIN_TOOLS, ...INPUT_TOOLS },
    test_trigger_tool_change: trigger("tool"),
    test_trigger_prompt_change: trigger("prompt"),
  };
  for (const [name, { schema, call }] of Object.entries(tools)) {
    const config = {
      description: name.replaceAll("_", " "),
      inputSchema: fromJsonSchema<Record<string, unknown>>(schema),
    };
    server.registerTool(name, config, call);
  }
  offerResources(server);
  offerPrompts(server);
  const config = { description: "is sometimes there" };
  const tool = server.registerTool(SHOWN.tool, config, () => text("here"));
  const prompt = server.registerPrompt(SHOWN.prompt, config, () => ({ messages: [] }));
  const show = (shows: Lists["shows"]) => {
    if (tool.enabled !== shows.tool) tool.update({ enabled: shows.tool });
    if (prompt.enabled !== shows.prompt) prompt.update({ enabled: shows.prompt });
  };
  show(lists.shows);
  return { server, show };
}

/** What a client that lost its stream asks for again. */
function eventStore(): EventStore {
  const events: { id: string; stream: string; message: JSONRPCMessage }[] = [];
  return {
    async storeEvent(stream, message) {
      const id = `${events.length}_${stream}`;
      events.push({ id, stream, message });
      return id;
    },
    async replayEventsAfter(last, { send }) {
      const from = events.findIndex(({ id }) => id === last);
      const stream = events[from]?.stream ?? "";
      for (const event of events.slice(from + 1))
        if (event.stream === stream) await send(event.id, event.message);
      return stream;
    },
  };
}

export async function startFixtureServer(): Promise<HttpFace> {
  const sessions = new Map<string, FixtureServer & { transport: WebStandardStreamableHTTPServerTransport }>();
  const shows = { tool: true, prompt: true };
  const lists: Lists = {
    shows,
    turn(what) {
      shows[what] = !shows[what];
      if (what === "tool") modern.notify.toolsChanged();
      else modern.notify.promptsChanged();
      for (const session of sessions.values()) session.show(shows);
    },
  };
  const modern = createMcpHandler(() => newServer(lists).server, { legacy: "reject" });
  const legacy = async (request: Request): Promise<Response> => {
    const id = request.headers.get("mcp-session-id");
    const known = id === null ? undefined : sessions.get(id);
    if (known !== undefined) return known.transport.handleRequest(request);
    if (id !== null) return new Response(null, { status: 404 });
    const made = newServer(lists);
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      eventStore: eventStore(),
      retryInterval: 500,
      onsessioninitialized: (session) => void sessions.set(session, { ...made, transport }),
      onsessionclosed: (session) => void sessions.delete(session),
    });
    await made.server.connect(transport);
    return transport.handleRequest(request);
  };
  return startWebFace({
    async fetch(request) {
      const refused =
        hostHeaderValidationResponse(request, localhostAllowedHostnames()) ??
        originValidationResponse(request, localhostAllowedOrigins());
      if (refused !== undefined) return refused;
      return (await isLegacyRequest(request.clone())) ? legacy(request) : modern.fetch(request);
    },
    close: async () => {
      await modern.close();
      for (const { server } of sessions.values()) await server.close();
    },
  });
}
