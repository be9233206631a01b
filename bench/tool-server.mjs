// The MCP server that every contender has behind it: `node tool-server.mjs stdio`, or `http`, which prints its port.
// Tools: echo {message}, make {bytes}, seen {of}. It counts what it runs: `nonce` in arguments tells one call from another.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const runs = new Map();
const made = new Map();

const schema = (properties) => ({ type: "object", properties });
const text = { type: "string" };
const tools = [
  {
    name: "echo",
    description: "Answers with its message",
    inputSchema: schema({ message: text, nonce: text }),
  },
  {
    name: "make",
    description: "Answers with so many bytes",
    inputSchema: schema({ bytes: { type: "integer" } }),
  },
  { name: "seen", description: "What has run", inputSchema: schema({ of: text }) },
];

function call({ name, arguments: given = {} }) {
  const { message = "", nonce, bytes = 0, of = "" } = given;
  switch (name) {
    case "echo":
      if (nonce !== undefined) runs.set(nonce, (runs.get(nonce) ?? 0) + 1);
      return message;
    case "make":
      if (!made.has(bytes)) made.set(bytes, "m".repeat(bytes));
      return made.get(bytes);
    case "seen": {
      const own = [...runs].filter(([each]) => each.startsWith(of));
      for (const [each] of own) runs.delete(each);
      return JSON.stringify({ calls: own.length, again: own.filter(([, count]) => count > 1).length });
    }
    default:
      throw new Error(`there is no tool "${name}"`);
  }
}

/** The answer's text, or null for what has none. */
function answer({ id, method, params }) {
  if (id === undefined) return null;
  const reply = (part) => JSON.stringify({ jsonrpc: "2.0", id, ...part });
  switch (method) {
    case "initialize": {
      const serverInfo = { name: "bench", version: "1" };
      return reply({
        result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo },
      });
    }
    case "ping":
      return reply({ result: {} });
    case "tools/list":
      return reply({ result: { tools } });
    case "tools/call":
      return reply({ result: { content: [{ type: "text", text: call(params) }] } });
    default:
      return reply({ error: { code: -32601, message: "Method not found" } });
  }
}

function serveHttp() {
  const server = createServer((request, response) => {
    if (request.method !== "POST")
      return void response.writeHead(request.method === "DELETE" ? 200 : 405).end();
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      const message = JSON.parse(Buffer.concat(chunks).toString());
      const body = answer(message);
      if (body === null) return void response.writeHead(202).end();
      const session = message.method === "initialize" ? { "mcp-session-id": randomUUID() } : {};
      const length = Buffer.byteLength(body);
      response.writeHead(200, { "content-type": "application/json", "content-length": length, ...session });
      response.end(body);
    });
  });
  server.keepAliveTimeout = 120_000;
  server.listen(0, "127.0.0.1", () => process.stdout.write(`${server.address().port}\n`));
}

function serveLines() {
  createInterface({ input: process.stdin }).on("line", (line) => {
    const text = answer(JSON.parse(line));
    if (text !== null) process.stdout.write(`${text}\n`);
  });
  process.stdin.on("end", () => process.exit(0));
}

if (process.argv[2] === "http") serveHttp();
else serveLines();
