import type { ContractParams, PROXY_METHODS, ProxyServer, ToolPin } from "@capsem/api";
import { BUILTIN_MCP_SERVER } from "@capsem/api";
import { Failure } from "@capsem/base";

export interface DeclaredServer {
  readonly name: string;
  readonly isExternal: boolean;
  /** Of a call that says nothing meanwhile. */
  readonly timeoutMs: number | undefined;
}

type ServerSet = ContractParams<typeof PROXY_METHODS, "servers.set">;

const LOCAL: DeclaredServer = { name: BUILTIN_MCP_SERVER, isExternal: false, timeoutMs: undefined };

/** Declared servers, ours among them, and what is known of their tools' definitions. */
export class ServerBook {
  generation = 0;
  #declared: readonly ProxyServer[] = [];
  #servers: ReadonlyMap<string, DeclaredServer> = new Map([[LOCAL.name, LOCAL]]);
  #disabled: ReadonlySet<string> = new Set();
  readonly #pins = new Map<string, ReadonlyMap<string, ToolPin>>();
  readonly #reportedAt = new Map<string, number>();
  #reports = 0;

  /** As the service said them: what the aggregator is told. */
  get declared(): readonly ProxyServer[] {
    return this.#declared;
  }

  /** In the order of their declaration; ours comes last. */
  get names(): Iterable<string> {
    return this.#servers.keys();
  }

  get(name: string): DeclaredServer | undefined {
    return this.#servers.get(name);
  }

  /** Why nothing named `name` ("tool", "prompt") of a server that is none of these can be used. */
  missing(server: string, what: string, name: string): Failure {
    if (this.#disabled.has(server)) {
      const text = `Cannot use ${what} ${JSON.stringify(name)}: tool server "${server}" is switched off`;
      return new Failure("mcp_server_disabled", text);
    }
    return new Failure("not_found", `Cannot find ${what} ${JSON.stringify(name)}: no server of that name`);
  }

  /** Counts reports: what was sent before one of them knows nothing of it. */
  get reports(): number {
    return this.#reports;
  }

  /**
   * The whole set. `reports` is how many there were when it was sent: pins that were answered to a later one stay. True:
   * something of the pins is another now.
   */
  set({ generation, servers, disabled, pins }: ServerSet, reports = this.#reports): boolean {
    this.generation = generation;
    this.#declared = servers;
    this.#disabled = new Set(disabled);
    this.#servers = new Map([
      ...servers.map(
        ({ name, timeout_ms }) => [name, { name, isExternal: true, timeoutMs: timeout_ms }] as const,
      ),
      [LOCAL.name, LOCAL],
    ]);
    const byServer = new Map<string, ToolPin[]>();
    for (const pin of pins) {
      const own = byServer.get(pin.server);
      if (own === undefined) byServer.set(pin.server, [pin]);
      else own.push(pin);
    }
    let isOther = false;
    for (const server of this.#servers.keys()) {
      if ((this.#reportedAt.get(server) ?? 0) > reports) continue;
      isOther = this.#putPins(server, byTool(byServer.get(server) ?? [])) || isOther;
    }
    for (const server of [...this.#pins.keys()]) if (!this.#servers.has(server)) this.#pins.delete(server);
    return isOther;
  }

  /** What the service answers to a report of what this server says now. */
  setPins(server: string, pins: readonly ToolPin[]): void {
    this.#reports += 1;
    this.#reportedAt.set(server, this.#reports);
    this.#putPins(server, byTool(pins.filter((pin) => pin.server === server)));
  }

  /** What is the same stays the same object: who has looked at it need not look again. */
  #putPins(server: string, now: ReadonlyMap<string, ToolPin>): boolean {
    const before = this.#pins.get(server);
    if (before === undefined ? now.size === 0 : isSame(before, now)) return false;
    this.#pins.set(server, now);
    return true;
  }

  pin(server: string, tool: string): ToolPin | undefined {
    return this.#pins.get(server)?.get(tool);
  }

  /** Identity of what is known: another one after each change. */
  pinsOf(server: string): ReadonlyMap<string, ToolPin> | undefined {
    return this.#pins.get(server);
  }
}

function byTool(pins: readonly ToolPin[]): ReadonlyMap<string, ToolPin> {
  return new Map(pins.map((pin) => [pin.tool, pin]));
}

function isSame(before: ReadonlyMap<string, ToolPin>, now: ReadonlyMap<string, ToolPin>): boolean {
  if (before.size !== now.size) return false;
  for (const [tool, { state, approved_hash }] of now) {
    const was = before.get(tool);
    if (was?.state !== state || was.approved_hash !== approved_hash) return false;
  }
  return true;
}
