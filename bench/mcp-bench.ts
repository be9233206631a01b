import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { assert } from "@capsem/base";
import { createClient } from "@capsem/sdk/node";
import { type Gateway, type Rig, startRig } from "../tests/support/rig.ts";
import { count, pssMib } from "./measure.ts";
import { type Figure, figure } from "./statistics.ts";

const program = join(resolve(import.meta.dirname, "..", ".."), "dist", "mcp.cjs");
const LATEST = "2025-11-25";

interface McpClient {
  readonly child: ChildProcess;
  request(method: string, params: object): Promise<Record<string, unknown>>;
  notify(method: string): void;
  end(): Promise<void>;
}

/** A bare client of JSON lines: what it adds to a figure is next to nothing. */
function startMcp(gateway: Gateway): McpClient {
  const child = spawn(
    process.execPath,
    [program, "--gateway-url", gateway.url, "--token-file", gateway.tokenFile],
    { stdio: ["pipe", "pipe", "inherit"], env: { PATH: process.env.PATH ?? "" } },
  );
  const waiting = new Map<number, (answer: Record<string, unknown>) => void>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    const answer = JSON.parse(line) as { id?: number } & Record<string, unknown>;
    if (answer.id !== undefined) waiting.get(answer.id)?.(answer);
  });
  const exited = new Promise<void>((done) => child.once("exit", () => done()));
  let next = 0;
  const send = (message: object) => child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  return {
    child,
    request(method, params) {
      const id = ++next;
      return new Promise((done) => {
        waiting.set(id, (answer) => {
          waiting.delete(id);
          done(answer);
        });
        send({ id, method, params });
      });
    },
    notify: (method) => send({ method }),
    async end() {
      child.stdin.end();
      await exited;
    },
  };
}

const hello = {
  protocolVersion: LATEST,
  capabilities: {},
  clientInfo: { name: "bench", version: "1.0.0" },
};

async function connect(gateway: Gateway): Promise<McpClient> {
  const client = startMcp(gateway);
  const answer = await client.request("initialize", hello);
  assert("result" in answer, "initialize must succeed");
  client.notify("notifications/initialized");
  return client;
}

async function callTool(client: McpClient, name: string, args: object): Promise<Record<string, unknown>> {
  const { result } = await client.request("tools/call", { name, arguments: args });
  const { isError, structuredContent } = result as {
    isError?: boolean;
    structuredContent?: Record<string, unknown>;
  };
  assert(isError !== true && structuredContent !== undefined, `${name} must succeed`);
  return structuredContent;
}

/** Through capsem-mcp and gateway, through the gateway alone, and straight to the service: in turn, in one run. */
export async function mcpFigures(): Promise<Figure[]> {
  const rig = await startRig({ pool: 0 });
  try {
    const gateway = await rig.startGateway();
    const client = await connect(gateway);
    const http = createClient({ url: gateway.url, tokenFile: gateway.tokenFile });
    try {
      const figures = [
        ...(await statusFigures(rig, client, http)),
        ...(await execFigures(rig, client)),
        ...(await startFigures(gateway)),
      ];
      return [...figures, ...memoryFigures(rig, gateway, client)];
    } finally {
      http.close();
      await client.end();
    }
  } finally {
    await rig.stop();
  }
}

async function statusFigures(
  rig: Rig,
  client: McpClient,
  http: ReturnType<typeof createClient>,
): Promise<Figure[]> {
  const through = { mcp: [] as number[], gateway: [] as number[], service: [] as number[] };
  const home = (await rig.client.status()).home;
  const sides = [
    [through.mcp, async () => (await callTool(client, "capsem_status", {})).home],
    [through.gateway, async () => (await http.status()).home],
    [through.service, async () => (await rig.client.status()).home],
  ] as const;
  for (let round = 0; round < count(500, 20) + 20; round += 1) {
    for (const [values, ask] of sides) {
      const started = performance.now();
      const answer = await ask();
      const ms = performance.now() - started;
      assert(answer === home, "status must be this service's");
      if (round >= 20) values.push(ms);
    }
  }
  return [
    figure("capsem_status, MCP → gateway → service", "ms", through.mcp, "p50 ≤ 2"),
    figure("status, gateway → service", "ms", through.gateway, ""),
    figure("status, service's socket", "ms", through.service, ""),
  ];
}

async function execFigures(rig: Rig, client: McpClient): Promise<Figure[]> {
  const vm = await rig.create();
  const [mcp, socket]: [number[], number[]] = [[], []];
  for (let warm = 0; warm < 5; warm += 1) await vm.exec({ argv: ["true"] });
  for (let round = 0; round < count(100, 5); round += 1) {
    const started = performance.now();
    const result = await callTool(client, "capsem_exec", { vm_id: vm.id, command: "true" });
    mcp.push(performance.now() - started);
    assert(result.exit_code === 0, "true must succeed");
    const again = performance.now();
    await vm.exec({ command: "true" });
    socket.push(performance.now() - again);
  }
  await vm.delete();
  return [
    figure("capsem_exec true, MCP → gateway → service → VM", "ms", mcp, ""),
    figure("exec true, service's socket → VM", "ms", socket, ""),
  ];
}

/** The start of `capsem-mcp` to its answer, beside the start and end of an empty Node. */
async function startFigures(gateway: Gateway): Promise<Figure[]> {
  const [answered, empty]: [number[], number[]] = [[], []];
  for (let round = 0; round < count(30, 3); round += 1) {
    const started = performance.now();
    const client = await connect(gateway);
    answered.push(performance.now() - started);
    await client.end();
    empty.push(await emptyNodeMs());
  }
  const node = figure("node -e 0", "ms", empty, "");
  const ratios = answered.map((ms) => ms / node.p50);
  return [
    figure("capsem-mcp, start → initialize answered", "ms", answered, ""),
    node,
    figure("capsem-mcp start / node -e 0", "ratio", ratios, "p50 ≤ 2.5"),
  ];
}

function emptyNodeMs(): Promise<number> {
  const started = performance.now();
  return new Promise((done) => {
    spawn(process.execPath, ["-e", "0"], { stdio: "ignore" }).once("exit", () =>
      done(performance.now() - started),
    );
  });
}

function memoryFigures(rig: Rig, gateway: Gateway, client: McpClient): Figure[] {
  const supervised = childrenOf(gateway.pid);
  const gatewayMib = [gateway.pid, ...supervised].map(pssMib).reduce((sum, mib) => sum + mib, 0);
  return [
    figure("service", "MiB PSS", [pssMib(rig.servicePid())], ""),
    figure("gateway with its gatekeeper", "MiB PSS", [gatewayMib], ""),
    figure("capsem-mcp", "MiB PSS", [pssMib(client.child.pid ?? 0)], ""),
  ];
}

function childrenOf(pid: number): number[] {
  const words = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  return words === "" ? [] : words.split(" ").map(Number);
}
