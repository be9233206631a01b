import type { McpServerFields, McpToolInfo, RouteName } from "@capsem/api";
import type { Handler } from "./fixture-handlers.ts";

export const MCP_HANDLERS: Partial<Record<RouteName, Handler>> = {
  mcpInfo: ({ state: { mcp } }) => {
    const { servers } = mcp;
    const sum = (count: (server: (typeof servers)[number]) => number) =>
      servers.reduce((total, server) => total + count(server), 0);
    return {
      servers: servers.length,
      enabled: sum(({ enabled }) => (enabled ? 1 : 0)),
      failed: sum(({ state }) => (state === "failed" ? 1 : 0)),
      tools: sum(({ tools }) => tools),
      quarantined: sum(({ quarantined }) => quarantined),
      default_permission: mcp.defaultPermission,
      guest: { stdio: "/run/capsem-mcp-server", http: "http://mcp.capsem.internal/mcp" },
      protocols: ["2025-11-25", "2026-07-28"],
      proxies: [{ scope: "host", aggregator: true, builtin: false, calls: mcp.calls.length }],
    };
  },
  mcpServers: ({ state }) => ({ servers: state.mcp.servers }),
  mcpServerPut: async (call) =>
    call.state.mcp.put(call.params.id ?? "", (await call.json()) as unknown as McpServerFields),
  mcpServerDelete: ({ state, params }) => {
    state.mcp.remove(params.id ?? "");
    return { digest: state.policy.digest, findings: [] };
  },
  mcpDefault: ({ state }) => defaultOf(state.mcp.defaultPermission),
  mcpDefaultSet: async (call) => {
    call.state.mcp.defaultPermission = permissionOf(await call.json());
    return defaultOf(call.state.mcp.defaultPermission);
  },
  mcpTools: ({ state, params }) => ({ server_id: params.id, tools: state.mcp.tools(params.id ?? "") }),
  mcpToolSet: async ({ state, params, json }) =>
    state.mcp.permit(params.id ?? "", params.tool ?? "", permissionOf(await json())),
  mcpRefresh: ({ state, params }) => ({ server_id: params.id, tools: state.mcp.refresh(params.id ?? "") }),
  mcpPins: ({ state, params }) => ({ server_id: params.id, pins: state.mcp.pins(params.id ?? "") }),
  mcpPinsApprove: async ({ state, params, json }) => {
    const { tool, hash } = await json();
    const text = (value: unknown) => (typeof value === "string" ? value : undefined);
    return { server_id: params.id, pins: state.mcp.approve(params.id ?? "", text(tool), text(hash)) };
  },
  mcpCall: async ({ state, json }) => {
    const { server_id, tool_id, arguments: args, vm_id } = await json();
    if (typeof vm_id === "string") state.get(vm_id);
    return state.mcp.call(String(server_id), String(tool_id), args, typeof vm_id === "string" ? vm_id : null);
  },
};

type Permission = McpToolInfo["permission"];

function permissionOf({ permission }: Readonly<Record<string, unknown>>): Permission {
  return permission as Permission;
}

function defaultOf(permission: Permission) {
  return { permission, rule_id: permission === "default" ? null : "profiles.rules.mcp-default" };
}
