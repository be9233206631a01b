// A whole proxy without its process: real channels to a scripted service and to scripted tool servers.
import { createHash, randomBytes } from "node:crypto";
import type { ProxyServer, ToolPin } from "@capsem/api";
import { compileSnapshot, parseLayer } from "@capsem/policy";
import { createPeer } from "@capsem/rpc";
import { onTestFinished } from "vitest";
import { McpProxy } from "../mcp-proxy.ts";
import { ServiceLink } from "../service-link.ts";
import { type ScriptedServer, ScriptedServers } from "./scripted-servers.ts";
import { ScriptedService } from "./scripted-service.ts";
import { TestClient, type TestClientOptions } from "./test-client.ts";

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

export interface RigOptions {
  /** External servers. */
  readonly servers?: Readonly<Record<string, ScriptedServer>>;
  readonly local?: ScriptedServer;
  readonly rules?: string;
  readonly cores?: number;
  /** Instead of room for everything. */
  readonly credit?: { readonly facts: number; readonly bytes: number };
  /** A neighbour that is asked for does not come. */
  readonly isAlone?: boolean;
  readonly random?: (bytes: number) => Uint8Array;
  readonly monotonicMs?: () => number;
}

export class RailRig {
  readonly service = new ScriptedService();
  readonly aggregator = new ScriptedServers();
  readonly builtin = new ScriptedServers();
  readonly proxy: McpProxy;
  readonly logs: string[] = [];
  #generation = 0;

  constructor({
    cores = 2,
    isAlone = false,
    random = (bytes) => randomBytes(bytes),
    monotonicMs,
  }: RigOptions) {
    const far = this.service.start();
    let link: ServiceLink | undefined;
    this.proxy = new McpProxy({
      vm: { id: "vm_abcdefghij234567", name: "box", image: null },
      service: {
        call: (...given) => {
          if (link === undefined) throw new Error("no link yet");
          return link.call(...given);
        },
      },
      ...{ version: "1.2.3", cores, random, digest: sha256 },
      clock: { nowMs: () => Date.now(), monotonicMs: monotonicMs ?? (() => performance.now()) },
      log: (level, message, fields) =>
        void this.logs.push(`${level} ${message} ${JSON.stringify(fields ?? {})}`),
    });
    const peer = createPeer({
      role: "guest",
      duplex: far,
      handlers: this.proxy.handlers(),
      onInternalError: (_, thrown) => {
        throw thrown;
      },
    });
    link = new ServiceLink(peer);
    if (!isAlone) this.service.onNeed = (kind) => this.grant(kind);
  }

  /** Another process of its kind, as the service grants it. */
  grant(kind: "aggregator" | "builtin"): void {
    this.#generation += 1;
    this.proxy.adopt({ kind, name: kind, generation: this.#generation }, this[kind].start());
  }

  async rules(user: string): Promise<void> {
    const parsed = parseLayer("user", user);
    if (parsed.kind !== "ok") throw new Error(JSON.stringify(parsed.faults));
    const { digest } = compileSnapshot({ user: parsed.value }, sha256);
    await this.service.call("policy.set", { user, corp: "", digest });
  }

  async declare(
    servers: Readonly<Record<string, ScriptedServer>>,
    pins: readonly ToolPin[] = [],
    disabled: readonly string[] = [],
  ): Promise<void> {
    for (const [name, server] of Object.entries(servers)) this.aggregator.servers.set(name, server);
    this.#generation += 1;
    const declared: ProxyServer[] = Object.keys(servers).map((name) => ({
      ...{ name, url: `https://${name}.example.com/mcp`, transport: "auto", protocol: "auto" },
      timeout_ms: 60_000,
    }));
    const set = { generation: this.#generation, servers: declared, disabled, pins };
    await this.service.call("servers.set", set);
  }

  credit(facts: number, bytes: number, refusing: { kind: string; message: string } | null = null) {
    return this.service.call("facts.credit", { add: { facts, bytes }, refusing });
  }

  client(options: TestClientOptions = {}): TestClient {
    const client = new TestClient(options);
    client.attach(this.proxy.rail.open(client));
    return client;
  }

  /** Once every fact that was sent is here. */
  async settled(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, 5));
    await this.service.call("facts.credit", { add: { facts: 0, bytes: 0 }, refusing: null });
  }
}

export async function railRig(options: RigOptions = {}): Promise<RailRig> {
  const rig = new RailRig(options);
  onTestFinished(() => rig.proxy.close());
  rig.builtin.servers.set("local", options.local ?? {});
  const { facts, bytes } = options.credit ?? { facts: 100_000, bytes: 1e9 };
  await rig.credit(facts, bytes);
  await rig.rules(options.rules ?? "");
  await rig.declare(options.servers ?? {});
  return rig;
}
