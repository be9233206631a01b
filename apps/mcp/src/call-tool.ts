import { ROUTES, type Tool } from "@capsem/api";
import type { CallOptions } from "@capsem/sdk";
import { requestOf } from "./arguments.ts";
import { limitCall, timeoutOf } from "./call-limit.ts";
import { failureOf } from "./failure-of.ts";
import type { CallToolResult, ServerContext } from "./mcp-sdk.ts";
import { type Every, startProgress } from "./progress.ts";
import { hintOf, resultOf } from "./tool-answer.ts";
import { errorOf, successOf } from "./tool-result.ts";

/** What a call needs of the SDK's client. */
export interface Calls {
  operation(name: Tool["route"]): (input: Record<string, unknown>, options: CallOptions) => Promise<unknown>;
}

export interface CallParts {
  readonly calls: Calls;
  readonly timeoutMs: number;
  readonly every: Every;
}

/** One call of a tool to its result. A failure is a result as well: it is for the model, not for the protocol. */
export async function callTool(
  name: string,
  tool: Tool,
  args: Readonly<Record<string, unknown>>,
  context: ServerContext,
  { calls, timeoutMs, every }: CallParts,
): Promise<CallToolResult> {
  const limit = limitCall(context.mcpReq.signal, timeoutOf(tool.route, args, timeoutMs));
  let stopProgress: () => void = () => undefined;
  try {
    const request = requestOf(name, tool, args);
    stopProgress = startProgress(name, context, every);
    const options = { signal: limit.signal, timeoutMs: limit.timeoutMs };
    const work = async () => {
      const answer = await calls.operation(tool.route)({ ...request }, options);
      return resultOf(tool, args, request, answer);
    };
    return successOf(await Promise.race([work(), limit.ended]), hintOf(tool));
  } catch (thrown) {
    const isJob = tool.route === "exec" || tool.route === "run";
    const { mutates } = ROUTES[tool.route];
    const { endedBy } = limit;
    return errorOf(failureOf({ tool: name, mutates, isJob, timeoutMs: limit.timeoutMs, endedBy }, thrown));
  } finally {
    stopProgress();
    limit.release();
  }
}
