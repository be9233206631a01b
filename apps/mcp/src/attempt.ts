import { ROUTES, type RouteName, type Tool, type ToolRequest } from "@capsem/api";
import type { Slots } from "@capsem/base";
import type { CallOptions } from "@capsem/sdk";
import { JOBS, limitCall, timeoutOf } from "./call-limit.ts";
import { failureOf } from "./failure-of.ts";
import { CALLS_WAITING_MAX } from "./limits.ts";
import type { CallToolResult } from "./mcp-sdk.ts";
import type { Every } from "./progress.ts";
import { hintOf, resultOf } from "./tool-answer.ts";
import { ToolFailure } from "./tool-failure.ts";
import { successOf } from "./tool-result.ts";

/** What a call needs of the SDK's client. */
export interface Calls {
  /** `clientName` is what the service records of who called. */
  operation(
    name: RouteName,
    clientName?: string,
  ): (input: Record<string, unknown>, options: CallOptions) => Promise<unknown>;
}

export interface CallParts {
  readonly calls: Calls;
  readonly timeoutMs: number;
  readonly every: Every;
  /** Those that are carried out at once; the others wait in turn. */
  readonly slots: Slots;
}

export interface ParsedCall {
  readonly name: string;
  readonly tool: Tool;
  /** As they came. */
  readonly args: Readonly<Record<string, unknown>>;
  readonly request: ToolRequest;
}

/** For whom a call is carried out, and when it is to end. */
export interface Caller {
  readonly clientName: string;
  /** Its user can be asked here: a call that a rule asks about is refused at once. Else the service holds it. */
  readonly asksLater: boolean;
  readonly cancel: AbortSignal;
}

/** Sends a call once, in its turn. Every failure is a `ToolFailure`. */
export async function attempt(call: ParsedCall, caller: Caller, parts: CallParts): Promise<CallToolResult> {
  const release = await takeTurn(call.name, parts.slots, caller.cancel);
  try {
    return await carryOut(call, caller, parts);
  } finally {
    release();
  }
}

/** Its time counts from here: a call that waited for its turn, or for a person, has no less of it. */
async function carryOut(
  { name, tool, args, request }: ParsedCall,
  { clientName, asksLater, cancel }: Caller,
  { calls, timeoutMs }: CallParts,
): Promise<CallToolResult> {
  const limit = limitCall(cancel, timeoutOf(tool.route, args, timeoutMs));
  try {
    const { signal } = limit;
    const options = { signal, timeoutMs: limit.timeoutMs, asks: asksLater ? "later" : "hold" } as const;
    const work = async () => {
      const answer = await calls.operation(tool.route, clientName)({ ...request }, options);
      return resultOf(tool, args, request, answer);
    };
    return successOf(await Promise.race([work(), limit.ended]), hintOf(tool));
  } catch (thrown) {
    const isJob = JOBS.includes(tool.route);
    const { mutates } = ROUTES[tool.route];
    const { endedBy } = limit;
    const failure = failureOf({ tool: name, mutates, isJob, timeoutMs: limit.timeoutMs, endedBy }, thrown);
    throw new ToolFailure(failure, thrown);
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
