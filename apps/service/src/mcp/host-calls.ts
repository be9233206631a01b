import {
  apiFailure,
  type ErrorKind,
  isErrorKind,
  type McpCallRequest,
  type McpCallResult,
} from "@capsem/api";
import { Failure } from "@capsem/base";
import { type ActContext, requesterText } from "../act.ts";
import type { Registry } from "../vm/registry.ts";
import { useVm } from "../vm/use-vm.ts";
import type { Cell } from "./cell.ts";
import type { Cells } from "./cells.ts";
import { PROXY_LIMITS } from "./limits.ts";

export interface HostCallParts {
  readonly cells: Cells;
  readonly registry: Pick<Registry, "get">;
  readonly monotonicMs: () => number;
}

/**
 * A call from the host, on the same rail as one from a VM: its proxy judges and records it. Throws "wrong_state" for a
 * VM that does not run, and what the proxy answers in the API's words.
 */
export async function callTool(
  { cells, registry, monotonicMs }: HostCallParts,
  asked: McpCallRequest,
  context: ActContext,
): Promise<McpCallResult> {
  const { vm_id: vmId } = asked;
  if (vmId === undefined) return callIn(cells.host, asked, context);
  const vm = registry.get(vmId);
  return useVm(vm, monotonicMs, context.signal, () => callIn(cells.ofVm(vm), asked, context));
}

/** The server is looked at anew; what it says is in the catalogue when this resolves. */
export async function lookAt(cell: Cell, server: string, context: ActContext): Promise<void> {
  try {
    const link = await cell.need(context.signal);
    await link.call("server.look", { server, refresh: true }, optionsOf(context, PROXY_LIMITS.lookTimeoutMs));
  } catch (thrown) {
    throw inWords(thrown, "mcp_server_not_found");
  }
}

async function callIn(cell: Cell, asked: McpCallRequest, context: ActContext): Promise<McpCallResult> {
  try {
    const link = await cell.need(context.signal);
    const { result, event_id } = await link.call(
      "tool.call",
      {
        server: asked.server_id,
        tool: asked.tool_id,
        arguments: JSON.stringify(asked.arguments ?? {}),
        requester: requesterText(context.requester),
        ...{
          client: context.client,
          token_id: context.tokenId,
          trace_id: context.traceId,
          turn_id: context.turn,
        },
      },
      optionsOf(context, PROXY_LIMITS.callTimeoutMs),
    );
    const value = resultOf(result);
    return { event_id, is_error: value.isError === true, result: value };
  } catch (thrown) {
    throw inWords(thrown, "mcp_tool_not_found");
  }
}

function optionsOf({ timeLeftMs, signal, trace }: ActContext, timeoutMs: number) {
  return { timeoutMs: Math.min(timeLeftMs ?? timeoutMs, timeoutMs), signal, trace };
}

function resultOf(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new Failure("upstream_failed", "Cannot read the tool's result: it is not JSON", { cause });
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw new Failure("upstream_failed", "Cannot read the tool's result: it is no object");
}

/** A proxy's refusal as the API has it: whoever asked is told which rule or ask it was. */
function inWords(thrown: unknown, notFound: ErrorKind): unknown {
  if (!(thrown instanceof Failure)) return thrown;
  const { kind, message, facts = {}, retryable } = thrown;
  if (kind === "not_found") return apiFailure(notFound, message, { cause: thrown });
  if (kind === "peer_lost" || kind === "worker_lost") {
    const text = "Cannot finish the call: the process that carried it was lost; it may have been done";
    return apiFailure("upstream_failed", text, { cause: thrown });
  }
  return isErrorKind(kind) ? apiFailure(kind, message, { cause: thrown, facts, retryable }) : thrown;
}
