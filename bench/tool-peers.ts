// Bridges and aggregators that others wrote, each with the bench's own server behind it.
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { eventLink, httpLink, lineLink, onLines } from "./tool-clients.ts";
import { type Contender, type Link, shakeHands, textOf } from "./tool-contender.ts";

const root = resolve(import.meta.dirname, "..", "..");
const server = join(root, "bench", "tool-server.mjs");
const INSTALL_TIMEOUT_MS = 5 * 60_000;
const START_TIMEOUT_MS = 60_000;
/** mcp-hub listens before it knows its servers. */
const POLL_MS = 50;

/**
 * The folder of the peers' packages, installed once for a lock file, outside the repository and without anybody's
 * scripts; null, with the reason said, where they cannot be had.
 */
export async function installPeers(): Promise<string | null> {
  const from = join(root, "bench", "peers");
  const lock = createHash("sha256")
    .update(readFileSync(join(from, "package-lock.json")))
    .digest("hex");
  const folder = join(tmpdir(), `capsem-bench-peers-${lock.slice(0, 12)}`);
  const stamp = join(folder, "node_modules", ".capsem-lock");
  if (existsSync(stamp)) return folder;
  mkdirSync(folder, { recursive: true });
  cpSync(from, folder, { recursive: true });
  const words = [
    "ci",
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--prefer-offline",
    "--fetch-retries=1",
  ];
  const child = spawn("npm", words, { cwd: folder, stdio: "ignore", detached: true });
  const timer = setTimeout(() => killGroup(child), INSTALL_TIMEOUT_MS);
  const code = await new Promise((done) => child.on("error", () => done(127)).on("close", done));
  clearTimeout(timer);
  if (code !== 0) {
    console.log(`tools: the peers are not measured: npm ended with ${code}`);
    return null;
  }
  writeFileSync(stamp, lock);
  return folder;
}

function killGroup(child: ChildProcess): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
  } catch {
    // It is gone already.
    return;
  }
}

/** A child with its own group, so that whatever it starts ends with it; its words are of no interest. */
function start(args: readonly string[], env: Readonly<Record<string, string>> = {}): ChildProcess {
  const child = spawn(process.execPath, args, {
    stdio: ["pipe", "pipe", "ignore"],
    detached: true,
    env: { PATH: process.env.PATH ?? "", HOME: tmpdir(), NODE_NO_WARNINGS: "1", ...env },
  });
  started.add(child);
  child.once("exit", () => started.delete(child));
  return child;
}

/** None outlives the bench, however that ends. */
const started = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of started) killGroup(child);
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

async function end(...children: readonly ChildProcess[]): Promise<void> {
  await Promise.all(
    children.map(async (child) => {
      const exited = new Promise<void>((done) => child.once("exit", () => done()));
      const isRunning = child.exitCode === null && child.signalCode === null;
      killGroup(child);
      if (isRunning) await exited;
    }),
  );
}

/** The bench's server by HTTP. */
export async function startServer(): Promise<{ url: string; pid: number; stop(): Promise<void> }> {
  const child = start([server, "http"]);
  const port = await new Promise<string>((done, fail) => {
    child.once("exit", (code) => fail(new Error(`the server ended with ${code}`)));
    if (child.stdout !== null) onLines(child.stdout, done);
  });
  return { url: `http://127.0.0.1:${port}/mcp`, pid: child.pid ?? 0, stop: () => end(child) };
}

async function freePort(): Promise<number> {
  const listener = createServer();
  await new Promise<void>((done) => listener.listen(0, "127.0.0.1", () => done()));
  const { port } = listener.address() as AddressInfo;
  await new Promise<void>((done) => listener.close(() => done()));
  return port;
}

/** Resolves when it listens. */
async function listens(port: number, child: ChildProcess): Promise<void> {
  // What it says is of no interest, but a full pipe would hold it up.
  child.stdout?.resume();
  for (const until = performance.now() + START_TIMEOUT_MS; performance.now() < until; ) {
    if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}`);
    const isOpen = await new Promise<boolean>((done) => {
      const socket = connect(port, "127.0.0.1");
      socket.on("connect", () => done(true)).on("error", () => done(false));
      socket.on("connect", () => socket.destroy());
    });
    if (isOpen) return;
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
  throw new Error("it does not listen");
}

interface Parts {
  readonly link: Link & { close?(): void };
  readonly children: readonly ChildProcess[];
  /** Before a tool's name. */
  readonly prefix?: string;
  readonly folder?: string;
}

async function contender(name: string, parts: Parts): Promise<Contender> {
  const { link, children, prefix = "", folder } = parts;
  await shakeHands(link);
  const call = async (tool: string, args: object) =>
    textOf(await link.request("tools/call", { name: prefix + tool, arguments: args }));
  await repeated(() => call("echo", { message: "ready" }));
  return {
    name,
    call,
    isCounted: true,
    pids: children.map(({ pid }) => pid ?? 0),
    async stop() {
      link.close?.();
      await end(...children);
      if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Some are open before they know their server. */
async function repeated<T>(act: () => Promise<T>): Promise<T> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await act();
    } catch (thrown) {
      if (tries >= 200) throw thrown;
      await new Promise((done) => setTimeout(done, POLL_MS));
    }
  }
}

export type Start = () => Promise<Contender>;

/** By HTTP and by lines, with nothing between. */
export function directStarts(url: string): Readonly<Record<string, Start>> {
  return {
    "direct, HTTP": () => contender("direct, HTTP", { link: httpLink(url), children: [] }),
    "direct, stdio": () => {
      const child = start([server, "stdio"]);
      return contender("direct, stdio", { link: lineLink(child), children: [child] });
    },
  };
}

export function peerStarts(folder: string, url: string): Readonly<Record<string, Start>> {
  const bin = (path: string) => join(folder, "node_modules", path);
  const gateway = bin("supergateway/dist/index.js");
  const overHttp = async (name: string, args: (port: number) => readonly string[]) => {
    const port = await freePort();
    const child = start(args(port));
    await listens(port, child);
    return contender(name, { link: httpLink(`http://127.0.0.1:${port}/mcp`), children: [child] });
  };
  const overLines = (
    name: string,
    args: readonly string[],
    own?: { env: Record<string, string>; folder: string },
  ) => {
    const child = start(args, own?.env);
    const parts = { link: lineLink(child), children: [child] };
    return contender(name, own === undefined ? parts : { ...parts, folder: own.folder });
  };
  const behind = `${process.execPath} ${server} stdio`;
  return {
    "supergateway, stdio → HTTP": () =>
      overHttp("supergateway, stdio → HTTP", (port) => [
        ...[gateway, "--stdio", behind, "--outputTransport", "streamableHttp", "--stateful"],
        ...["--port", String(port), "--logLevel", "none"],
      ]),
    "supergateway, HTTP → stdio": () =>
      overLines("supergateway, HTTP → stdio", [gateway, "--streamableHttp", url, "--logLevel", "none"]),
    "mcp-proxy, stdio → HTTP": () =>
      overHttp("mcp-proxy, stdio → HTTP", (port) => [
        ...[bin("mcp-proxy/dist/bin/mcp-proxy.mjs"), "--port", String(port), "--server", "stream"],
        ...["--maxBodySize", "0", "--", process.execPath, server, "stdio"],
      ]),
    "mcp-remote, HTTP → stdio": () => {
      const home = mkdtempSync(join(tmpdir(), "capsem-bench-remote-"));
      const args = [bin("mcp-remote/dist/proxy.js"), url, "--allow-http", "--transport", "http-only"];
      return overLines("mcp-remote, HTTP → stdio", args, {
        env: { MCP_REMOTE_CONFIG_DIR: home },
        folder: home,
      });
    },
    "mcp-hub, aggregator": () => startHub(bin("mcp-hub/dist/cli.js")),
  };
}

async function startHub(program: string): Promise<Contender> {
  const folder = mkdtempSync(join(tmpdir(), "capsem-bench-hub-"));
  const config = join(folder, "servers.json");
  const behind = { command: process.execPath, args: [server, "stdio"] };
  writeFileSync(config, JSON.stringify({ mcpServers: { b: behind } }));
  const port = await freePort();
  const homes = { XDG_STATE_HOME: folder, XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder };
  const child = start([program, "--port", String(port), "--config", config], homes);
  await listens(port, child);
  const link = await repeated(() => eventLink(`http://127.0.0.1:${port}/mcp`));
  return contender("mcp-hub, aggregator", { link, children: [child], prefix: "b__", folder });
}
