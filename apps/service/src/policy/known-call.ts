import { BUILTIN_MCP_SERVER } from "@capsem/api";
import { CLEAN, type EventFields, labelFields } from "@capsem/policy";

/** What the service knows of a declared server and one of its tools; null: nobody has looked at the server yet. */
export interface KnownTool {
  readonly isPinned: boolean | null;
}
/** Null where no server is declared so. */
export type KnownTools = (server: string, tool: string) => KnownTool | null;

/** A call from inside a VM as rules see it, without arguments and untainted. */
export function callFields(server: string, tool: string, { isPinned }: KnownTool): EventFields {
  return {
    ...labelFields(CLEAN),
    "mcp.method": "tools/call",
    "mcp.transport": "framed",
    "mcp.server.name": server,
    "mcp.server.external": server !== BUILTIN_MCP_SERVER,
    ...(isPinned === null ? {} : { "mcp.server.pinned": isPinned }),
    "mcp.tool_call.name": tool,
    "mcp.request.arguments": {},
  };
}

export interface Completed {
  readonly fields: Readonly<Record<string, unknown>>;
  /** What was not given, one of each field. */
  readonly filled: readonly string[];
  /** What could not be filled in, and decides. */
  readonly missing: string | null;
}

/**
 * A call of a tool that the service knows, with all that such a call would have: whoever asks what would be decided names
 * server and tool, and would be answered for a call that nobody can make. What was given counts.
 */
export function completedCall(
  { type, fields }: { readonly type: string; readonly fields: Readonly<Record<string, unknown>> },
  known: KnownTools,
): Completed {
  const [server, tool] = [fields["mcp.server.name"], fields["mcp.tool_call.name"]];
  const isCall = type === "mcp.tool_call" && typeof server === "string" && typeof tool === "string";
  const facts = isCall ? known(server, tool) : null;
  if (!isCall || facts === null) return { fields, filled: [], missing: null };
  const added = Object.entries(callFields(server, tool, facts)).filter(([path]) => !(path in fields));
  const isUnseen = facts.isPinned === null && !("mcp.server.pinned" in fields);
  return {
    fields: { ...Object.fromEntries(added), ...fields },
    filled: added.map(([path, value]) => `${path}=${JSON.stringify(value)}`),
    missing: isUnseen ? "mcp.server.pinned: nobody has looked at this server yet" : null,
  };
}
