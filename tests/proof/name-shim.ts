/**
 * Stands before an aggregator for programs that call a server's things by their own names: it writes the names of requests
 * anew, as the aggregator lists them. Answers pass untouched.
 */
import { once } from "node:events";
import {
  request as ask,
  createServer,
  type IncomingMessage,
  type RequestOptions,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { joinName, joinUri, splitUri } from "@capsem/mcp-protocol";
import type { HttpFace } from "./http-face.ts";

interface Message {
  readonly method?: string;
  readonly params?: {
    name?: unknown;
    uri?: unknown;
    ref?: { type?: unknown; name?: unknown; uri?: unknown };
  };
}

/** `server`: whose names. `target`: a port on loopback, where the host's name is `host`. */
export async function startNameShim(server: string, target: number, host: string): Promise<HttpFace> {
  const shim = createServer((incoming, outgoing) => {
    pass(incoming, outgoing, { server, target, host }).catch(() => outgoing.destroy());
  });
  shim.listen(0, "127.0.0.1");
  await once(shim, "listening");
  const { port } = shim.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    stop: async () => {
      const closed = once(shim, "close");
      shim.close();
      shim.closeAllConnections();
      await closed;
    },
  };
}

interface Way {
  readonly server: string;
  readonly target: number;
  readonly host: string;
}

async function pass(incoming: IncomingMessage, outgoing: ServerResponse, way: Way): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk);
  const body = renamedBody(Buffer.concat(chunks), way.server);
  const own = new RegExp(`^(http://)?127\\.0\\.0\\.1:${incoming.socket.localPort}$`);
  const headers: string[] = [];
  for (let at = 0; at < incoming.rawHeaders.length; at += 2) {
    const [name = "", value = ""] = incoming.rawHeaders.slice(at, at + 2);
    const isLength = /^(content-length|transfer-encoding|connection)$/i.test(name);
    if (!isLength) headers.push(name, renamedHeader(name, value, own, incoming, way));
  }
  if (body.length > 0) headers.push("content-length", String(body.length));
  const { method = "GET", url: path = "/" } = incoming;
  const to = { host: "127.0.0.1", port: way.target, path, method, setHost: false, agent: false as const };
  const options: RequestOptions = { ...to, headers };
  const up = ask(options, (answer) => {
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
    outgoing.flushHeaders();
    answer.pipe(outgoing);
    answer.on("error", () => outgoing.destroy());
  });
  up.on("error", () => outgoing.destroy());
  outgoing.on("close", () => up.destroy());
  up.end(body);
}

function renamedHeader(
  name: string,
  value: string,
  own: RegExp,
  incoming: IncomingMessage,
  way: Way,
): string {
  const lower = name.toLowerCase();
  const isOwn = own.test(value.trim());
  if (lower === "host" && isOwn) return way.host;
  if (lower === "origin" && isOwn) return `http://${way.host}`;
  if (lower !== "mcp-name") return value;
  switch (incoming.headers["mcp-method"]) {
    case "tools/call":
    case "prompts/get":
      return toolName(way.server, value);
    case "resources/read":
      return resourceUri(way.server, value);
    default:
      return value;
  }
}

/** What a list gave is ours already. */
function resourceUri(server: string, uri: string): string {
  return splitUri(uri) === null ? joinUri(server, uri) : uri;
}

function toolName(server: string, name: string): string {
  return name.startsWith(joinName(server, "")) ? name : joinName(server, name);
}

function renamedBody(bytes: Buffer, server: string): Buffer {
  let message: Message;
  try {
    message = JSON.parse(bytes.toString()) as Message;
  } catch {
    // No JSON: how that is answered is for the other side to say.
    return bytes;
  }
  const { params } = message;
  if (typeof params !== "object" || params === null) return bytes;
  switch (message.method) {
    case "tools/call":
    case "prompts/get":
      if (typeof params.name === "string") params.name = toolName(server, params.name);
      break;
    case "resources/read":
    case "resources/subscribe":
    case "resources/unsubscribe":
      if (typeof params.uri === "string") params.uri = resourceUri(server, params.uri);
      break;
    case "completion/complete":
      if (typeof params.ref?.name === "string") params.ref.name = toolName(server, params.ref.name);
      if (typeof params.ref?.uri === "string") params.ref.uri = resourceUri(server, params.ref.uri);
      break;
    default:
      return bytes;
  }
  return Buffer.from(JSON.stringify(message));
}
