import type { ContractParams, ContractResult, PROXY_METHODS } from "@capsem/api";
import { Failure } from "@capsem/base";
import { joinName, memberOf } from "@capsem/mcp-protocol";
import type { RpcContext } from "@capsem/rpc";
import type { CallParts } from "../call/call-parts.ts";
import { type Caller, NO_ABILITIES } from "../call/caller.ts";
import type { ToolCalls } from "../call/tool-call.ts";
import { plainObject } from "../judge/plain-json.ts";
import { PROXY_LIMITS } from "../limits.ts";

type Params = ContractParams<typeof PROXY_METHODS, "tool.call">;
type Result = ContractResult<typeof PROXY_METHODS, "tool.call">;

const TOTAL_MS = PROXY_LIMITS.callTimeoutMs;
/** What the service makes an answer of; all else is the server's fault, or ours. */
const SAID: ReadonlySet<string> = new Set([
  ...["policy", "not_found", "mcp_server_disabled", "timeout", "mcp_server_timeout"],
  ...["upstream_failed", "cancelled"],
]);

/** Calls from the host, which go the same way as those of a guest. */
export class HostCalls {
  readonly #parts: CallParts;
  readonly #tools: ToolCalls;

  constructor(parts: CallParts, tools: ToolCalls) {
    this.#parts = parts;
    this.#tools = tools;
  }

  /** Throws Failure of the kinds above, and those of a ledger. */
  async call(
    params: Params,
    { signal, timeLeftMs }: Pick<RpcContext, "signal" | "timeLeftMs">,
  ): Promise<Result> {
    const aborted = new AbortController();
    const onAbort = () => aborted.abort(new Failure("cancelled", "Cannot go on: its caller is gone"));
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    try {
      const caller = this.#caller(params, aborted, timeLeftMs ?? TOTAL_MS);
      const args = plainObject(params.arguments);
      const name = joinName(params.server, params.tool);
      const { answer, eventId } = await this.#tools.call(caller, { name, arguments: args });
      if (answer.kind === "result" && eventId !== null) return { result: answer.text, event_id: eventId };
      throw new Failure("upstream_failed", `Cannot call "${name}": ${messageIn(answer.text)}`);
    } catch (thrown) {
      throw translated(thrown);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  #caller(params: Params, controller: AbortController, timeLeftMs: number): Caller {
    const { requester, client, token_id, trace_id, turn_id } = params;
    const taintKey = `direct:${token_id ?? ""}:${client ?? requester}`;
    return {
      ...{ owner: this, taintKey, era: "legacy", abilities: NO_ABILITIES, requestId: null },
      ...{ progressToken: undefined, paramHeaders: undefined, logLevel: undefined, wantsLog: () => false },
      asker: {
        ...{ transport: "direct", processName: null, label: this.#parts.taints.of(taintKey) },
        person: { requester, client, token_id, trace_id, turn_id },
      },
      deadlineMs: this.#parts.clock.monotonicMs() + Math.min(timeLeftMs, TOTAL_MS),
      signal: controller.signal,
      abort: (reason) => controller.abort(reason),
      tell: async () => false,
      ask: async () => {
        throw new Failure("unreachable", "Cannot ask the client: it is not one of this protocol");
      },
    };
  }
}

function translated(thrown: unknown): unknown {
  if (!(thrown instanceof Failure) || SAID.has(thrown.kind) || thrown.kind.startsWith("ledger_"))
    return thrown;
  const { kind, message, facts = {} } = thrown;
  if (kind === "unjudgeable") return new Failure("policy", message, { cause: thrown, facts });
  return new Failure("upstream_failed", message, { cause: thrown, retryable: thrown.retryable });
}

function messageIn(errorText: string): string {
  const message = memberOf(errorText, "message");
  return message?.startsWith('"') === true ? (JSON.parse(message) as string) : "it answered with an error";
}
