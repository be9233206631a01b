import {
  apiFailure,
  BUILTIN_MCP_SERVER,
  type ContractParams,
  type McpServerInfo,
  type McpToolInfo,
  type PROXY_SERVICE_METHODS,
  type ProxyServer,
} from "@capsem/api";
import { listedName } from "@capsem/mcp-protocol";
import {
  argumentRules,
  decide,
  mayConcernTool,
  mcpToolIn,
  type PolicySnapshot,
  type ServerInForce,
  securityEvent,
} from "@capsem/policy";
import { callFields, type KnownTool } from "../policy/known-call.ts";
import { sha256 } from "../policy/policy-state.ts";
import type { PinBook } from "./pin-book.ts";
import { type PinnedTool, type ServerRecord, shownOf, stateOf } from "./pin-record.ts";
import type { ServerSet } from "./proxy-link.ts";

type Health = ContractParams<typeof PROXY_SERVICE_METHODS, "server.health">;

export interface ToolServerParts {
  readonly snapshot: () => PolicySnapshot;
  readonly pins: () => PinBook;
}

/** Declared servers, as people and proxies see them: what settings say, what was last seen, and how they are. */
export class ToolServers {
  readonly #parts: ToolServerParts;
  readonly #health = new Map<string, Health>();
  #generation = 1;

  constructor(parts: ToolServerParts) {
    this.#parts = parts;
  }

  get names(): string[] {
    return [...this.#parts.snapshot().servers.keys(), BUILTIN_MCP_SERVER];
  }

  /** Declared and not switched off, or ours. */
  isServed(name: string): boolean {
    return name === BUILTIN_MCP_SERVER || this.#parts.snapshot().servers.get(name)?.isEnabled === true;
  }

  /** Throws Failure "mcp_server_not_found". */
  check(name: string): void {
    if (name === BUILTIN_MCP_SERVER || this.#parts.snapshot().servers.has(name)) return;
    throw apiFailure("mcp_server_not_found", `Cannot find tool server "${name}": none is declared so`);
  }

  /** The next set is another one. */
  changed(): void {
    this.#generation += 1;
  }

  /** What a proxy gets: no header, no grant of an address. */
  set(): ServerSet {
    const declared = [...this.#parts.snapshot().servers.values()];
    return {
      generation: this.#generation,
      servers: declared.filter(({ isEnabled }) => isEnabled).map(proxyServer),
      disabled: declared.flatMap(({ name, isEnabled }) => (isEnabled ? [] : [name])),
      pins: this.#parts.pins().pins(),
    };
  }

  note(health: Health): void {
    // One that is not declared any more has no health.
    if (this.isServed(health.server)) this.#health.set(health.server, health);
  }

  /** Some proxy has an answer of it, which is newer than the trouble that another one had. */
  answered(name: string): void {
    if (!this.#parts.snapshot().servers.has(name) || this.#health.get(name)?.state === "ok") return;
    this.note({ server: name, state: "ok", error: null });
  }

  forget(name: string): void {
    this.#health.delete(name);
  }

  info(name: string): McpServerInfo {
    this.check(name);
    const declared = this.#parts.snapshot().servers.get(name);
    const seen = this.#parts.pins().of(name);
    return { ...declarationOf(name, declared), ...this.#stateOf(name, seen), ...seenOf(seen) };
  }

  /** What a call of it would be judged with. Of a server that was seen, a tool that was not is one that nobody approved. */
  known(name: string, tool: string): KnownTool | null {
    if (!this.names.includes(name)) return null;
    const seen = this.#parts.pins().of(name);
    const pinned = seen?.tools.find((each) => each.name === tool);
    return { isPinned: seen === null ? null : pinned !== undefined && stateOf(pinned) === "pinned" };
  }

  tools(name: string): McpToolInfo[] {
    this.check(name);
    const looking = argumentRules(this.#parts.snapshot().rules);
    return (this.#parts.pins().of(name)?.tools ?? []).map((tool) => this.tool(name, tool, looking));
  }

  tool(server: string, tool: PinnedTool, looking = argumentRules(this.#parts.snapshot().rules)): McpToolInfo {
    const snapshot = this.#parts.snapshot();
    const shown = shownOf(tool);
    return {
      ...{ server, name: tool.name, listed_as: listedName(server, tool.name) },
      title: shown?.title ?? null,
      description: shown?.description ?? null,
      ...decisionOf(snapshot, server, tool),
      argument_rules: looking
        .filter((rule) => mayConcernTool(rule, server, tool.name))
        .map(({ id, action }) => ({ rule_id: id, action })),
      permission: mcpToolIn(snapshot.rules, server, tool.name, sha256),
      pin: stateOf(tool),
      definition: jsonOf(shown?.text ?? "null"),
    };
  }

  #stateOf(name: string, seen: ServerRecord | null): Pick<McpServerInfo, "state" | "error"> {
    if (!this.isServed(name)) return { state: "disabled", error: null };
    const health = this.#health.get(name);
    if (health !== undefined) return { state: health.state, error: health.error };
    return { state: seen === null ? "unseen" : "idle", error: null };
  }
}

function proxyServer({ name, url, transport, protocol, timeoutSecs }: ServerInForce): ProxyServer {
  return { name, url, transport, protocol, timeout_ms: timeoutSecs * 1000 };
}

function declarationOf(name: string, server: ServerInForce | undefined) {
  if (server === undefined) {
    return {
      ...{
        name,
        source: "builtin" as const,
        is_locked: true,
        url: null,
        transport: "builtin",
        protocol: "builtin",
      },
      ...{ enabled: true, grants: [], headers: [], timeout_secs: BUILTIN_TIMEOUT_SECS },
    };
  }
  const { source, isLocked, url, transport, protocol, isEnabled, grants, headers, timeoutSecs } = server;
  return {
    ...{ name, source, is_locked: isLocked, url, transport, protocol, enabled: isEnabled },
    ...{ grants: [...grants], headers: [...headers.keys()], timeout_secs: timeoutSecs },
  };
}
/** Of one page of the web, by any of our own tools. */
const BUILTIN_TIMEOUT_SECS = 60;

function seenOf(seen: ServerRecord | null) {
  if (seen === null) {
    return { server_info: null, tools: 0, quarantined: 0, resources: 0, prompts: 0, last_seen_at: null };
  }
  const { info, tools, seen_at } = seen;
  const states = tools.map(stateOf);
  return {
    server_info: { name: info.name, version: info.version, protocol: info.protocol },
    tools: states.filter((state) => state !== "gone").length,
    quarantined: states.filter((state) => state === "changed" || state === "new").length,
    ...{ resources: info.resources, prompts: info.prompts, last_seen_at: seen_at },
  };
}

function decisionOf(snapshot: PolicySnapshot, server: string, tool: PinnedTool) {
  const event = securityEvent(
    "mcp.tool_call",
    { event_id: "000000000000" },
    callFields(server, tool.name, { isPinned: stateOf(tool) === "pinned" }),
  );
  const { action, rule_id } = decide(snapshot, event);
  return { decision: action, rule_id };
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // It was JSON to whoever read it from the server; its text says all that there is.
    return text;
  }
}
