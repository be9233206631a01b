import * as z from "zod";
import { vmId } from "./vm-schema.ts";

/** Ids that are ours: `local` is the builtin tools' server. */
export const RESERVED_MCP_SERVERS = ["builtin", "local", "capsem", "capsule", "objects"] as const;
export const BUILTIN_MCP_SERVER = "local";

/** Lower case, so that no two differ by it; never `__`, at which a tool's name is split. */
export const mcpServerName = z
  .string()
  .regex(/^(?!.*__)[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?$/, "takes a-z, 0-9, - and single _, at most 32");
/** As the server spells it. */
export const mcpToolName = z.string().min(1).max(256);

/** `HOST:PORT`, exactly: a private or local address that this server may be dialled at. */
export const mcpGrant = z.string().regex(/^(\[[0-9a-f:.]+\]|[a-z0-9.-]+):[0-9]{1,5}$/i, "takes HOST:PORT");

/** A declaration, `[mcp.servers.NAME]`: what a person writes. */
export const mcpServerFields = z.strictObject({
  /** http or https, of the MCP endpoint. */
  url: z.string().min(1).max(2_048),
  transport: z.enum(["auto", "http", "sse"]).optional(),
  /** `legacy` is spoken by handshake, `modern` is 2026-07-28; auto finds out. */
  protocol: z.enum(["auto", "legacy", "modern"]).optional(),
  enabled: z.boolean().optional(),
  grants: z.array(mcpGrant).max(16).optional(),
  /** Sent with each request. A value may hold one `credential:blake3:…`, replaced for that credential's hosts alone. */
  headers: z.record(z.string().regex(/^[A-Za-z0-9-]{1,64}$/), z.string().max(4_096)).optional(),
  /** Of one call. */
  timeout_secs: z.number().int().min(1).max(300).optional(),
});
export type McpServerFields = z.infer<typeof mcpServerFields>;

export const mcpServerInfo = z.strictObject({
  name: mcpServerName,
  source: z.enum(["user", "corp", "builtin"]),
  is_locked: z.boolean(),
  url: z.string().nullable(),
  transport: z.string(),
  protocol: z.string(),
  enabled: z.boolean(),
  grants: z.array(z.string()),
  /** Names alone: values may hold references. */
  headers: z.array(z.string()),
  timeout_secs: z.number().int(),
  /** `unseen`: nobody has looked yet. Else as it was when somebody last did. */
  state: z.enum(["unseen", "idle", "connecting", "ok", "failed", "disabled"]),
  error: z.string().nullable(),
  /** What the server calls itself, and speaks. */
  server_info: z.strictObject({ name: z.string(), version: z.string(), protocol: z.string() }).nullable(),
  tools: z.number().int(),
  /** Tools whose definition is not the one that was approved, or that are new. */
  quarantined: z.number().int(),
  resources: z.number().int(),
  prompts: z.number().int(),
  last_seen_at: z.string().nullable(),
});
export type McpServerInfo = z.infer<typeof mcpServerInfo>;

export const MCP_PERMISSIONS = ["allow", "ask", "block"] as const;
/** `default`: nothing is said of this one. */
export const mcpPermission = z.enum([...MCP_PERMISSIONS, "default"]);

export const mcpToolInfo = z.strictObject({
  server: mcpServerName,
  name: mcpToolName,
  /** As clients see it: `SERVER__TOOL`, shortened where that is too long. */
  listed_as: z.string(),
  title: z.string().nullable(),
  description: z.string().nullable(),
  /** What a call of it without arguments would meet now. */
  decision: z.enum(["allow", "ask", "block"]),
  rule_id: z.string(),
  /** Rules that look at arguments, so that a call with some may meet another decision: ids and actions. */
  argument_rules: z.array(z.strictObject({ rule_id: z.string(), action: z.string() })),
  permission: mcpPermission,
  pin: z.enum(["pinned", "changed", "new", "gone"]),
  /** The approved definition, or the new tool's own: as the server wrote it. */
  definition: z.unknown(),
});
export type McpToolInfo = z.infer<typeof mcpToolInfo>;

export const mcpInfo = z.strictObject({
  servers: z.number().int(),
  enabled: z.number().int(),
  failed: z.number().int(),
  tools: z.number().int(),
  quarantined: z.number().int(),
  default_permission: mcpPermission,
  /** Of this version: where programs in a VM find their tools. */
  guest: z.strictObject({ stdio: z.string(), http: z.string() }),
  protocols: z.array(z.string()),
  /** Proxies that run: of VMs, and the host's own as `host`. */
  proxies: z.array(
    z.strictObject({
      scope: z.string(),
      aggregator: z.boolean(),
      builtin: z.boolean(),
      calls: z.number().int(),
    }),
  ),
});
export type McpInfo = z.infer<typeof mcpInfo>;

export const mcpPinInfo = z.strictObject({
  server: mcpServerName,
  tool: mcpToolName,
  pin: z.enum(["pinned", "changed", "new", "gone"]),
  approved_hash: z.string().nullable(),
  current_hash: z.string().nullable(),
  first_seen_at: z.string(),
  approved_at: z.string().nullable(),
  /** Lines of both definitions: `  ` in both, `- ` approved, `+ ` as it is now. Empty where nothing differs. */
  difference: z.array(z.string()),
});
export type McpPinInfo = z.infer<typeof mcpPinInfo>;

export const mcpCallRequest = z.strictObject({
  server_id: mcpServerName,
  tool_id: mcpToolName,
  arguments: z.record(z.string(), z.unknown()).optional(),
  /** Through this VM's proxy and into its ledger; else the host's own. */
  vm_id: vmId.optional(),
});
export type McpCallRequest = z.infer<typeof mcpCallRequest>;
/** The tool's own result, whole. `is_error`: the tool said that it failed, which is a result. */
export const mcpCallResult = z.strictObject({
  event_id: z.string(),
  is_error: z.boolean(),
  result: z.looseObject({}),
});
export type McpCallResult = z.infer<typeof mcpCallResult>;

/** What `GET /mcp/default` answers: where no rule says anything of a tool. */
export const mcpDefault = z.strictObject({ permission: mcpPermission, rule_id: z.string().nullable() });
