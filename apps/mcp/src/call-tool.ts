import { ROUTES, type Tool, type ToolRequest } from "@capsem/api";
import type { Slots } from "@capsem/base";
import type { CallOptions } from "@capsem/sdk";
import { requestOf } from "./arguments.ts";
import { JOBS, limitCall, timeoutOf, withTimeout } from "./call-limit.ts";
import { failureOf } from "./failure-of.ts";
import { CALLS_WAITING_MAX } from "./limits.ts";
import type { CallToolResult, ServerContext } from "./mcp-sdk.ts";
import { type Every, startProgress } from "./progress.ts";
import { refuseMarked } from "./proto-argument.ts";
import { hintOf, resultOf } from "./tool-answer.ts";
import { ToolFailure } from "./tool-failure.ts";
import { errorOf, successOf } from "./tool-result.ts";

/** What a call needs of the SDK's client. */
export interface Calls {
  operation(name: Tool["route"]): (input: Record<string, unknown>, options: CallOptions) => Promise<unknown>;
}

export interface CallParts {
  readonly calls: Calls;
  readonly timeoutMs: number;
  readonly every: Every;
  /** Those that are carried out at once; the others wait in turn. */
  readonly slots: Slots;
}

/** One call of a tool to its result. A failure is a result as well: it is for the model, not for the protocol. */
export async function callTool(
  name: string,
  tool: Tool,
  args: Readonly<Record<string, unknown>>,
  context: ServerContext,
  parts: CallParts,
): Promise<CallToolResult> {
  let stopProgress: () => void = () => undefined;
  try {
    refuseMarked(name, context.mcpReq._meta);
    const request = requestOf(name, tool, withTimeout(tool.route, args, parts.timeoutMs));
    stopProgress = startProgress(name, context, parts.every);
    const release = await takeTurn(name, parts.slots, context.mcpReq.signal);
    try {
      return await carryOut({ name, tool, args, request }, context.mcpReq.signal, parts);
    } finally {
      release();
    }
  } catch (thrown) {
    return errorOf(
      failureOf({ tool: name, mutates: false, isJob: false, timeoutMs: 0, endedBy: null }, thrown),
    );
  } finally {
    stopProgress();
  }
}

interface ParsedCall {
  readonly name: string;
  readonly tool: Tool;
  /** As they came. */
  readonly args: Readonly<Record<string, unknown>>;
  readonly request: ToolRequest;
}

/** Its time counts from here: a call that waited for its turn has no less of it. */
async function carryOut(
  { name, tool, args, request }: ParsedCall,
  cancel: AbortSignal,
  { calls, timeoutMs }: CallParts,
): Promise<CallToolResult> {
  const limit = limitCall(cancel, timeoutOf(tool.route, args, timeoutMs));
  try {
    const options = { signal: limit.signal, timeoutMs: limit.timeoutMs };
    const work = async () => {
      const answer = await calls.operation(tool.route)({ ...request }, options);
      return resultOf(tool, args, request, answer);
    };
    return successOf(await Promise.race([work(), limit.ended]), hintOf(tool));
  } catch (thrown) {
    const isJob = JOBS.includes(tool.route);
    const { mutates } = ROUTES[tool.route];
    const { endedBy } = limit;
    return errorOf(failureOf({ tool: name, mutates, isJob, timeoutMs: limit.timeoutMs, endedBy }, thrown));
  } finally {
    limit.release();
  }
}

/** The gateway has places for a number of calls and refuses the others; a client that asks for more waits here. */
async function takeTurn(name: string, slots: Slots, cancel: AbortSignal): Promise<() => void> {
  const turn = slots.take(cancel);
  if (turn === null)
    throw new ToolFailure({
      kind: "network",
      reason: `Cannot start ${name}: ${CALLS_WAITING_MAX} calls wait already, nothing was sent`,
      code: "throttled",
      retryable: true,
    });
  try {
    return await turn;
  } catch (cause) {
    const reason = `Cannot start ${name}: cancelled, nothing was sent`;
    throw new ToolFailure({ kind: "cancelled", reason, retryable: false }, cause);
  }
}
