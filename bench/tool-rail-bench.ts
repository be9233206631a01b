/** What the proxy alone adds to a tool call: the built one, sealed, between a guest's lane and a tool of no work. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { assert } from "@capsem/base";
import { compileSnapshot } from "@capsem/policy";
import {
  encodeMcpMessage,
  encodeMetaLine,
  McpFrameReader,
  type Mux,
  type MuxStream,
  PORTS,
} from "@capsem/wire";
import { GuestLane, startProxy } from "../apps/proxy/src/testing/proxy-process.ts";
import { ScriptedServers, said, tool } from "../apps/proxy/src/testing/scripted-servers.ts";
import { count, pssMib } from "./measure.ts";
import { type Figure, figure } from "./statistics.ts";

const digest = (text: string) => createHash("sha256").update(text).digest("hex");

/** One framed client: answers by the id of their request. */
class BenchClient {
  readonly #stream: MuxStream;
  readonly #waiting = new Map<number, (text: string) => void>();
  #lastId = -1;
  #isEnded = false;

  constructor(mux: Mux) {
    this.#stream = mux.open(PORTS.traffic.number, "");
    void this.#stream.write(encodeMetaLine("bench"));
    // The proxy ends before its client has read its end.
    this.#read().catch((thrown: unknown) => {
      if (!this.#isEnded) throw thrown;
    });
  }

  async request(method: string, params: unknown): Promise<string> {
    this.#lastId += 2;
    const id = this.#lastId;
    const answer = new Promise<string>((resolve) => this.#waiting.set(id, resolve));
    const text = JSON.stringify({ jsonrpc: "2.0", id, method, params });
    for (const frame of encodeMcpMessage({ streamId: id, processName: "bench" }, text)) {
      void this.#stream.write(frame);
    }
    return answer;
  }

  end(): void {
    this.#isEnded = true;
    this.#stream.end();
  }

  async #read(): Promise<void> {
    const reader = new McpFrameReader();
    for (let chunk = await this.#stream.read(); chunk !== null; chunk = await this.#stream.read()) {
      reader.push(chunk, ({ streamId, text }) => {
        this.#waiting.get(streamId)?.(text);
        this.#waiting.delete(streamId);
      });
    }
  }
}

/** Of all threads of a process, in milliseconds. */
function cpuMs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const taken = threads.map((tid) =>
    Number(readFileSync(`/proc/${pid}/task/${tid}/schedstat`, "utf8").split(" ")[0]),
  );
  return taken.reduce((sum, one) => sum + one, 0) / 1e6;
}

interface Round {
  readonly timesMs: number[];
  readonly callsPerSecond: number;
  readonly cpuUs: number;
}

async function round(
  client: BenchClient,
  pid: number,
  size: number,
  inFlight: number,
  calls: number,
): Promise<Round> {
  const text = "x".repeat(size);
  const timesMs: number[] = [];
  let left = calls;
  const cpu = cpuMs(pid);
  const started = performance.now();
  const one = async () => {
    while (left > 0) {
      left -= 1;
      const begun = performance.now();
      const answer = await client.request("tools/call", { name: "local__echo", arguments: { text } });
      timesMs.push(performance.now() - begun);
      assert(answer.includes('"result"') && answer.includes(text), `a call failed: ${answer.slice(0, 200)}`);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, one));
  const seconds = (performance.now() - started) / 1_000;
  return { timesMs, callsPerSecond: calls / seconds, cpuUs: ((cpuMs(pid) - cpu) * 1_000) / calls };
}

const PROMISE = "≤ 0.25 ms on the host, 10,000 calls/s at 64";

export async function railFigures(): Promise<Figure[]> {
  const lane = new GuestLane();
  const { lane: start, mux } = lane.expect();
  const proxy = startProxy({ lane: { fd: lane.hostFd, start } });
  const builtin = new ScriptedServers();
  builtin.servers.set("local", {
    tools: [tool("echo", { annotations: { openWorldHint: false } })],
    serve: async ({ params }) => said((JSON.parse(params) as { arguments: { text: string } }).arguments.text),
  });
  proxy.service.onNeed = () => proxy.grant("builtin", 1, builtin);
  proxy.service.keepsNothing = true;
  const { service } = proxy;
  try {
    await proxy.ready;
    await service.call("facts.credit", { add: { facts: 1e9, bytes: 1e15 }, refusing: null });
    await service.call("policy.set", { user: "", corp: "", digest: compileSnapshot({}, digest).digest });
    await service.call("servers.set", { generation: 1, servers: [], disabled: [], pins: [] });
    const client = new BenchClient(await mux);
    await round(client, proxy.pid, 100, 16, count(2_000, 50));
    const figures: Figure[] = [];
    for (const [size, inFlight, calls] of [
      [100, 1, count(3_000, 20)],
      [100, 16, count(6_000, 40)],
      [100, 64, count(12_000, 80)],
      [1_000_000, 1, count(60, 2)],
    ] as const) {
      const { timesMs, callsPerSecond, cpuUs } = await round(client, proxy.pid, size, inFlight, calls);
      const what = `proxy alone, ${size} B, ${inFlight} at once`;
      figures.push(figure(what, "ms", timesMs, PROMISE));
      figures.push(figure(`${what}: calls`, "1/s", [callsPerSecond], PROMISE));
      figures.push(figure(`${what}: CPU of the proxy`, "µs", [cpuUs], PROMISE));
    }
    figures.push(figure("proxy after these calls", "MiB", [pssMib(proxy.pid)], "flat"));
    client.end();
    return figures;
  } finally {
    await proxy.end();
    lane.close();
  }
}
