import { DIAGNOSTIC_TOOLS } from "./tool-diagnostics.ts";
import { EVIDENCE_TOOLS } from "./tool-evidence.ts";
import { MCP_TOOLS } from "./tool-mcp.ts";
import type { Tool } from "./tool-row.ts";
import { VM_TOOLS } from "./tool-vms.ts";
import { WORK_TOOLS } from "./tool-work.ts";

/** The host tools (design, "Host MCP server"): one for each route that names a tool, which a test checks both ways. */
export const TOOLS = {
  ...VM_TOOLS,
  ...WORK_TOOLS,
  ...DIAGNOSTIC_TOOLS,
  ...EVIDENCE_TOOLS,
  ...MCP_TOOLS,
} as const satisfies Record<string, Tool>;

export type ToolName = keyof typeof TOOLS;

/** The tool of that name, null for any other word. */
export function toolOf(name: string): Tool | null {
  return Object.hasOwn(TOOLS, name) ? TOOLS[name as ToolName] : null;
}
