import * as z from "zod";
import { MCP_ROUTES } from "./mcp-routes.ts";
import { mcpServerName, mcpToolName } from "./mcp-schema.ts";
import { given, noArguments, READS, SETS, type Tool, tool } from "./tool-row.ts";
import { vmId } from "./vm-schema.ts";

const serverArgument = mcpServerName.describe(
  "Name of the tool server, from capsem_mcp_servers; local is the one with the built-in tools",
);
const ofServer = z.strictObject({ server_id: serverArgument });
const onServer = ({ server_id: id }: { readonly server_id: string }) => ({ params: { id } });
const nothing = () => ({});

export const MCP_TOOLS = {
  capsem_mcp_info: tool({
    route: "mcpInfo",
    title: "Tool servers in short",
    description:
      "How many tool servers (MCP) are declared, how many of them fail, how many tools they have and how many of those wait for approval, what a tool meets of which no rule speaks, and where programs in a VM find their tools: guest.stdio is a program to start, guest.http an address.",
    input: noArguments,
    output: MCP_ROUTES.mcpInfo.result,
    annotations: READS,
    request: nothing,
  }),
  capsem_mcp_servers: tool({
    route: "mcpServers",
    title: "Tool servers",
    description:
      "Every tool server (MCP) that is declared, by name: address, state as it was last seen, its error if it failed, and how many tools it has. quarantined counts tools whose definition is not the one that a person approved. Only a person declares or removes one (capsem mcp add).",
    input: noArguments,
    output: MCP_ROUTES.mcpServers.result,
    annotations: READS,
    request: nothing,
  }),
  capsem_mcp_default: tool({
    route: "mcpDefault",
    title: "What other tools meet",
    description:
      "What a call of a tool meets of which no rule speaks: allow, ask (a person answers), block, or default, where nothing was set and the preset decides. Only a person changes it (capsem mcp default).",
    input: noArguments,
    output: MCP_ROUTES.mcpDefault.result,
    annotations: READS,
    request: nothing,
  }),
  capsem_mcp_tools: tool({
    route: "mcpTools",
    title: "Tools of a server",
    description:
      "Tools of one server as they were last seen: name, description, schemas (in definition, as the server wrote it), what a call without arguments would meet now (decision, rule_id), and pin: pinned is approved; changed and new wait for a person. Empty for a server that nobody has looked at: capsem_mcp_refresh.",
    input: ofServer,
    output: MCP_ROUTES.mcpTools.result,
    annotations: READS,
    request: onServer,
  }),
  capsem_mcp_refresh: tool({
    route: "mcpRefresh",
    title: "Look at a server now",
    description:
      "Connects to one tool server, reads its tools and compares them with what was approved. Answers as capsem_mcp_tools does. A tool that is new or has changed stays as it was for callers until a person approves it.",
    input: ofServer,
    output: MCP_ROUTES.mcpRefresh.result,
    annotations: { ...SETS, openWorldHint: true },
    request: onServer,
  }),
  capsem_mcp_call: tool({
    route: "mcpCall",
    title: "Call a tool",
    description:
      "Calls a tool of a server and answers with its whole result as the server gave it. is_error true is the tool's own word that it failed. The call is judged by rules and recorded, as if a program in a VM had made it; with vm_id it is that VM's, whose state must be running. It runs once and is never repeated.",
    input: z.strictObject({
      server_id: serverArgument,
      tool_id: mcpToolName.describe("Name of the tool as capsem_mcp_tools has it (name, not listed_as)"),
      arguments: z
        .record(z.string(), z.unknown())
        .optional()
        .describe("What the tool takes, by its input schema; nothing is {}"),
      vm_id: vmId
        .optional()
        .describe("Id of the VM (vm_…) whose rules, labels and record the call belongs to"),
    }),
    output: MCP_ROUTES.mcpCall.result,
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
    request: (args) => ({ body: given(args) }),
  }),
} as const satisfies Record<string, Tool>;
