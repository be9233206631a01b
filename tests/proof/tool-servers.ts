/** Servers that others wrote, as somebody would start them, each on a port of its own on loopback. */
import { type ChildProcess, spawn } from "node:child_process";
import type { AddressInfo } from "node:net";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import type { McpServerFields } from "@capsem/api";
import { sleep } from "@capsem/base";
import { type ClientHome, SERVERS_FOLDER } from "./clients.ts";

interface Program {
  readonly file: string;
  readonly args?: (port: number) => readonly string[];
  readonly env?: (port: number) => Readonly<Record<string, string>>;
  readonly path?: string;
  readonly transport?: McpServerFields["transport"];
}

const PORT = (port: number) => ({ PORT: String(port) });

export const TOOL_SERVERS = {
  /** Resources, prompts and all kinds of content. */
  everything: {
    file: "@modelcontextprotocol/server-everything/dist/index.js",
    args: () => ["streamableHttp"],
    env: PORT,
  },
  /** The same by the older transport. */
  events: {
    file: "@modelcontextprotocol/server-everything/dist/index.js",
    args: () => ["sse"],
    env: PORT,
    path: "/sse",
    transport: "sse",
  },
  /** Tools with output schemas and pages for a client to show. */
  monitor: { file: "@modelcontextprotocol/server-system-monitor/dist/index.js", env: PORT },
  /** Takes no request that names it by an address. */
  browser: { file: "@playwright/mcp/cli.js", args: (port) => ["--headless", "--port", String(port)] },
  /** Speaks 2026-07-28. */
  context: {
    file: "@upstash/context7-mcp/dist/index.js",
    args: (port) => ["--transport", "http", "--port", String(port)],
  },
  /** Speaks no revision after 2025-06-18. */
  firecrawl: {
    file: "firecrawl-mcp/dist/index.js",
    env: (port) => ({ ...PORT(port), HTTP_STREAMABLE_SERVER: "true", FIRECRAWL_API_KEY: "fc-no-account" }),
  },
  /** Answers `server/discover` with a fault of its own. */
  git: {
    file: "@cyanheads/git-mcp-server/dist/index.js",
    env: (port) => ({
      ...{ MCP_TRANSPORT_TYPE: "http", MCP_HTTP_PORT: String(port), MCP_HTTP_HOST: "127.0.0.1" },
      MCP_LOG_LEVEL: "error",
    }),
  },
} as const satisfies Readonly<Record<string, Program>>;
export type ToolServerName = keyof typeof TOOL_SERVERS;

export interface ToolServer {
  readonly port: number;
  readonly fields: McpServerFields;
  stop(): Promise<void>;
}

const START_TIMEOUT_MS = 60_000;

export async function startToolServer(name: ToolServerName, home: ClientHome): Promise<ToolServer> {
  const { file, args, env, path = "/mcp", transport = "auto" }: Program = TOOL_SERVERS[name];
  const port = await freePort();
  const words = [join(SERVERS_FOLDER, file), ...(args?.(port) ?? [])];
  const child = spawn(process.execPath, words, {
    env: { ...home.env, ...env?.(port) },
    cwd: home.path,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const output of [child.stdout, child.stderr]) {
    output.on("data", (chunk: Buffer) => {
      said = (said + chunk).slice(-2_000);
    });
  }
  const stop = () => end(child);
  try {
    await listens(port, child, START_TIMEOUT_MS);
  } catch (thrown) {
    await stop();
    throw new Error(`Cannot start ${name}: ${String(thrown)}\n${said}`);
  }
  return { port, fields: { url: `http://localhost:${port}${path}`, transport }, stop };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((done) => child.once("exit", done));
  child.kill("SIGKILL");
  await gone;
}

async function freePort(): Promise<number> {
  const holder = createServer();
  await new Promise<void>((done) => holder.listen(0, "127.0.0.1", done));
  const { port } = holder.address() as AddressInfo;
  await new Promise((done) => holder.close(done));
  return port;
}

async function listens(port: number, child: ChildProcess, timeoutMs: number): Promise<void> {
  for (const until = performance.now() + timeoutMs; performance.now() < until; ) {
    if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}`);
    const isOpen = await new Promise<boolean>((done) => {
      const socket = connect(port, "localhost");
      socket.once("connect", () => done(true)).once("error", () => done(false));
      socket.once("connect", () => socket.destroy());
    });
    if (isOpen) return;
    await sleep(100);
  }
  throw new Error(`it does not listen within ${timeoutMs} ms`);
}
