import type { Tool } from "@capsem/api";
import { requestOf } from "./arguments.ts";
import type { CallParts } from "./attempt.ts";
import { withTimeout } from "./call-limit.ts";
import type { Conversation } from "./conversation.ts";
import { failureOf } from "./failure-of.ts";
import type { CallToolResult, InputRequiredResult, ServerContext } from "./mcp-sdk.ts";
import { startProgress } from "./progress.ts";
import { refuseMarked } from "./proto-argument.ts";
import { throughAsks } from "./through-asks.ts";
import { errorOf } from "./tool-result.ts";

/** A call as it came. */
export interface ToolCall {
  readonly name: string;
  readonly tool: Tool;
  readonly args: Readonly<Record<string, unknown>>;
}

/** One call of a tool to its result. A failure is a result as well: it is for the model, not for the protocol. */
export async function callTool(
  { name, tool, args }: ToolCall,
  context: ServerContext,
  conversation: Conversation,
  parts: CallParts,
): Promise<CallToolResult | InputRequiredResult> {
  let stopProgress: () => void = () => undefined;
  try {
    refuseMarked(name, context.mcpReq._meta);
    const request = requestOf(name, tool, withTimeout(tool.route, args, parts.timeoutMs));
    stopProgress = startProgress(name, context, parts.every);
    return await throughAsks({ name, tool, args, request }, conversation, context.mcpReq.signal, parts);
  } catch (thrown) {
    return errorOf(
      failureOf({ tool: name, mutates: false, isJob: false, timeoutMs: 0, endedBy: null }, thrown),
    );
  } finally {
    stopProgress();
  }
}
