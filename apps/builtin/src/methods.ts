import { BUILTIN_MCP_SERVER, type ContractResult, type TOOL_SERVER_METHODS } from "@capsem/api";
import { Failure, Slots, textOf } from "@capsem/base";
import { RPC_CODES, withLastMember, writeRecord } from "@capsem/mcp-protocol";
import type { Handler, RpcContext, StreamHandler } from "@capsem/rpc";
import { BUILTIN_LIMITS, FETCH_LIMITS } from "./limits.ts";
import { echo } from "./tools/echo.ts";
import type { Tool, ToolCall, ToolParts } from "./tools/tool.ts";
import { DEFINITIONS, TOOL_OF } from "./tools/tool-table.ts";

export interface BuiltinMethods {
  readonly handlers: Readonly<Record<string, Handler>>;
  readonly streaming: Readonly<Record<string, StreamHandler>>;
}

export interface MethodParts extends ToolParts {
  readonly version: string;
  readonly log: (message: string, thrown: unknown) => void;
}

/** What exists on the channel to a proxy: one server, with the tools of this program. */
export function builtinMethods(parts: MethodParts): BuiltinMethods {
  const slots = new Slots(BUILTIN_LIMITS.fetchesMax, BUILTIN_LIMITS.fetchesWaitingMax);
  return {
    handlers: {
      // Who else is declared is nothing to these tools.
      "server.set": async () => ({}),
      "server.catalog": async (params) => {
        checkServer(params);
        return catalog(parts.version);
      },
    },
    streaming: {
      "server.request": async (params, context) => {
        const request = requestOf(params);
        return {
          result: {},
          run: async (stream) => {
            const record = await answer(request, { parts, slots, context });
            // Whoever is gone has ended the stream.
            await writeRecord(stream, record.kind, record.text);
          },
        };
      },
    },
  };
}

function catalog(version: string): ContractResult<typeof TOOL_SERVER_METHODS, "server.catalog"> {
  return {
    name: "capsem-builtin",
    version,
    protocol: "2025-11-25",
    era: "legacy",
    capabilities: '{"tools":{}}',
    instructions: null,
    tools: [...DEFINITIONS],
    resources: [],
    templates: [],
    prompts: [],
  };
}

interface Request {
  readonly method: string;
  readonly params: string;
  readonly timeoutMs: number;
}

/** By hand: each call comes through here. */
function requestOf(params: unknown): Request {
  const { method, params: text, timeout_ms: timeoutMs, arguments: large } = checkServer(params);
  if (
    typeof method !== "string" ||
    typeof text !== "string" ||
    typeof timeoutMs !== "number" ||
    !(timeoutMs > 0)
  )
    throw new Failure("invalid_input", "Cannot call server.request: a field is missing");
  if (!(large instanceof Uint8Array)) return { method, params: text, timeoutMs };
  return { method, params: withLastMember(text, "arguments", textOf(large)), timeoutMs };
}

function checkServer(params: unknown): Readonly<Record<string, unknown>> {
  const fields = typeof params === "object" && params !== null ? (params as Record<string, unknown>) : {};
  if (fields.server === BUILTIN_MCP_SERVER) return fields;
  throw new Failure(
    "not_found",
    `Cannot call the server: there is no "${String(fields.server).slice(0, 64)}" here`,
  );
}

interface Circumstances {
  readonly parts: MethodParts;
  readonly slots: Slots;
  /** Of the request. Its signal is made when it is asked for. */
  readonly context: RpcContext;
}

interface Answer {
  readonly kind: "result" | "error";
  readonly text: string;
}

async function answer({ method, params, timeoutMs }: Request, around: Circumstances): Promise<Answer> {
  if (method !== "tools/call")
    return error(RPC_CODES.methodNotFound, `Unknown method: ${method.slice(0, 64)}`);
  const { name, arguments: given } = JSON.parse(params) as { name?: unknown; arguments?: unknown };
  const tool = typeof name === "string" ? TOOL_OF.get(name) : undefined;
  if (tool === undefined) return error(RPC_CODES.invalidParams, `Unknown tool: ${String(name).slice(0, 64)}`);
  try {
    const result = await call(tool, given, Math.min(timeoutMs, FETCH_LIMITS.timeoutMs), around);
    return { kind: "result", text: JSON.stringify(result) };
  } catch (thrown) {
    if (thrown instanceof Failure) return { kind: "result", text: JSON.stringify(failedResult(thrown)) };
    around.parts.log(`${tool.definition.name} failed`, thrown);
    return error(RPC_CODES.internalError, "The tool failed; the log of the builtin tools says why");
  }
}

async function call(tool: Tool, given: unknown, timeoutMs: number, around: Circumstances): Promise<object> {
  const { parts, slots, context } = around;
  const toolCall: ToolCall = {
    arguments: given,
    timeoutMs,
    traceId: context.trace ?? null,
    get signal() {
      return context.signal;
    },
  };
  // It has nothing to wait for.
  if (tool === echo) return tool.call(toolCall, parts);
  const taken = slots.take(context.signal);
  if (taken === null) {
    const words = `Cannot call the tool: ${BUILTIN_LIMITS.fetchesWaitingMax} calls wait already`;
    throw new Failure("upstream_failed", words, { retryable: true });
  }
  const leave = await taken;
  try {
    return await tool.call(toolCall, parts);
  } finally {
    leave();
  }
}

/** The model reads why. */
function failedResult({ kind, message, facts, retryable }: Failure): object {
  return {
    content: [{ type: "text", text: message }],
    isError: true,
    _meta: { "dev.capsem/ledger": { error: kind, retryable, ...facts } },
  };
}

function error(code: number, message: string): Answer {
  return { kind: "error", text: JSON.stringify({ code, message }) };
}
