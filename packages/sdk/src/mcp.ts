import type {
  Changed,
  McpCallRequest,
  McpCallResult,
  McpInfo,
  McpPinInfo,
  McpServerFields,
  McpServerInfo,
  McpToolInfo,
} from "@capsem/api";
import { MCP_CALL_TIMEOUT_MS, MCP_LOOK_TIMEOUT_MS } from "./limits.ts";
import { type CallOptions, type OperationInput, type OperationResult, operation } from "./operation.ts";
import type { Transport } from "./transport.ts";

/** `default`: nothing is said, and the other rules and the preset decide. */
export type McpPermission = OperationInput<"mcpDefaultSet">["body"]["permission"];
export type McpDefault = OperationResult<"mcpDefault">;
export type ApproveRequest = OperationInput<"mcpPinsApprove">["body"];

/** Tool servers: what programs in VMs may call, and what of it a person has approved. `local` has the built-in tools. */
export interface Mcp {
  info(options?: CallOptions): Promise<McpInfo>;
  servers(options?: CallOptions): Promise<McpServerInfo[]>;
  /** The whole declaration: what it does not say has its default. It holds when this returns. */
  putServer(name: string, server: McpServerFields, options?: CallOptions): Promise<McpServerInfo>;
  /** Its pins and the permissions of its tools go with it. */
  deleteServer(name: string, options?: CallOptions): Promise<Changed>;
  /** What a tool meets of which no rule speaks. */
  default(options?: CallOptions): Promise<McpDefault>;
  setDefault(permission: McpPermission, options?: CallOptions): Promise<McpDefault>;
  /** As they were last seen; `refresh` looks. */
  tools(server: string, options?: CallOptions): Promise<McpToolInfo[]>;
  /** By a rule of its own, which `default` takes away. */
  setPermission(
    server: string,
    tool: string,
    permission: McpPermission,
    options?: CallOptions,
  ): Promise<McpToolInfo>;
  refresh(server: string, options?: CallOptions): Promise<McpToolInfo[]>;
  /** Definitions that were approved, with how they differ from what the server says now. */
  pins(server: string, options?: CallOptions): Promise<McpPinInfo[]>;
  /** Of one tool, or all. With the `hash` that was looked at, another definition is not approved by it. */
  approvePins(server: string, approve?: ApproveRequest, options?: CallOptions): Promise<McpPinInfo[]>;
  /** A tool that says it failed is a result (`is_error`), not an error. Sent once. */
  call(request: McpCallRequest, options?: CallOptions): Promise<McpCallResult>;
}

export function mcpOf(transport: Transport): Mcp {
  const of = (id: string) => ({ params: { id } });
  return {
    info: (options) => operation(transport, "mcpInfo")({}, options),
    servers: async (options) => (await operation(transport, "mcpServers")({}, options)).servers,
    putServer: (id, body, options) => operation(transport, "mcpServerPut")({ params: { id }, body }, options),
    deleteServer: (id, options) => operation(transport, "mcpServerDelete")(of(id), options),
    default: (options) => operation(transport, "mcpDefault")({}, options),
    setDefault: (permission, options) =>
      operation(transport, "mcpDefaultSet")({ body: { permission } }, options),
    tools: async (id, options) => (await operation(transport, "mcpTools")(of(id), options)).tools,
    setPermission: (id, tool, permission, options) =>
      operation(transport, "mcpToolSet")({ params: { id, tool }, body: { permission } }, options),
    refresh: async (id, options) => {
      const long = { timeoutMs: MCP_LOOK_TIMEOUT_MS, ...options };
      return (await operation(transport, "mcpRefresh")(of(id), long)).tools;
    },
    pins: async (id, options) => (await operation(transport, "mcpPins")(of(id), options)).pins,
    approvePins: async (id, body = {}, options) =>
      (await operation(transport, "mcpPinsApprove")({ params: { id }, body }, options)).pins,
    call: (body, options) =>
      operation(transport, "mcpCall")({ body }, { timeoutMs: MCP_CALL_TIMEOUT_MS, ...options }),
  };
}
