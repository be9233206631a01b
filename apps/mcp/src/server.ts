import { Slots } from "@capsem/base";
import type { Calls } from "./attempt.ts";
import { conversationOf } from "./conversation.ts";
import { CALLS_MAX, CALLS_WAITING_MAX, LIST_TTL_MS, NAME_CHARS_MAX } from "./limits.ts";
import { type ListedTool, ProtocolError, ProtocolErrorCode, Server } from "./mcp-sdk.ts";
import type { Every } from "./progress.ts";
import { listTools } from "./tool-list.ts";

export interface ServerOptions {
  readonly version: string;
  /** The longest wait for an answer of a call that names no `timeout_secs`. */
  readonly timeoutMs: number;
  readonly every: Every;
  /** Seals what a client brings back with its user's answer. The same all the time that the process lives. */
  readonly stateKey: () => Uint8Array;
}

const INSTRUCTIONS = `Capsem runs commands in real Linux VMs that are isolated from this machine.
- One command and no state: capsem_run. Several commands that share files: capsem_create, then capsem_exec with its vm_id, at last capsem_delete.
- A VM without a name is destroyed with its files when it stops.
- Commands run as user in /workspace. Name timeout_secs for work of more than 20 s.
- A failed call is {"error": {kind, reason, retryable}}, with status and code when the service answered. When the reason says "unknown", look (capsem_list, capsem_info) before you call again.
- kind "policy": a rule refused the call, or waits for a person to approve it. Do not try to get around it; tell the user the reason, which says how.
- A reason that asks for a command of the user: tell them; until then every tool fails in the same way.
- A VM or a command does not work: capsem_triage, capsem_vm_logs.`;

/** The server without a transport: stdio and tests bring their own, in either era of the protocol. */
export function createServer(calls: Calls, options: ServerOptions): Server {
  const { version, timeoutMs, every, stateKey } = options;
  const hint = { ttlMs: LIST_TTL_MS, cacheScope: "public" } as const;
  const server = new Server(
    { name: "capsem", title: "Capsem", version },
    {
      capabilities: { tools: {} },
      instructions: INSTRUCTIONS,
      cacheHints: { "tools/list": hint, "server/discover": hint },
    },
  );
  let tools: ListedTool[] | null = null;
  const slots = new Slots(CALLS_MAX, CALLS_WAITING_MAX);
  server.setRequestHandler("tools/list", () => {
    tools ??= listTools();
    return { tools };
  });
  // What carries out a call is loaded by the first one: start-up is what every client waits for.
  server.setRequestHandler("tools/call", async ({ params }, context) => {
    const { toolOf, callTool } = await import("./calls.ts");
    const tool = toolOf(params.name);
    if (tool === null)
      throw new ProtocolError(
        ProtocolErrorCode.InvalidParams,
        `Unknown tool: ${params.name.slice(0, NAME_CHARS_MAX)}`,
      );
    const conversation = await conversationOf(server, context, params, stateKey);
    const call = { name: params.name, tool, args: params.arguments ?? {} };
    return callTool(call, context, conversation, { calls, timeoutMs, every, slots });
  });
  return server;
}
