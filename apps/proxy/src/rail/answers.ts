import { Failure, type FailureFacts, utf8 } from "@capsem/base";
import { errorText, RPC_CODES } from "@capsem/mcp-protocol";
import type { Answer } from "../call/caller.ts";
import type { LargeMessage } from "../conversation.ts";

/** The JSON-RPC code of what our own code throws; all others are `internalError`. */
const CODES: Readonly<Record<string, number>> = {
  parse_error: RPC_CODES.parseError,
  invalid_request: RPC_CODES.invalidRequest,
  policy: RPC_CODES.invalidRequest,
  unjudgeable: RPC_CODES.invalidRequest,
  method_not_found: RPC_CODES.methodNotFound,
  header_mismatch: RPC_CODES.headerMismatch,
  invalid_params: RPC_CODES.invalidParams,
  not_found: RPC_CODES.invalidParams,
  mcp_server_disabled: RPC_CODES.invalidParams,
  unsupported_version: RPC_CODES.unsupportedVersion,
  timeout: RPC_CODES.timedOut,
  mcp_server_timeout: RPC_CODES.timedOut,
};

/** Of facts of a failure, what its client may know. */
const SHOWN = ["rule_id", "reason", "ask_id", "supported", "requested", "uri"] as const;

/** The whole message; of an answer that is large in UTF-8, and as a text where it is asked for. */
export function answerMessage(idText: string, answer: Answer): string | LargeMessage {
  const { kind, bytes } = answer;
  const head = `{"jsonrpc":"2.0","id":${idText},"${kind}":`;
  if (bytes === undefined) return `${head}${answer.text}}`;
  return { parts: [utf8(head), bytes, utf8("}")], toText: () => `${head}${answer.text}}` };
}

/** The whole message; what is no Failure is a bug of ours, and its words stay here. */
export function failureText(idText: string | null, thrown: unknown): string {
  if (!(thrown instanceof Failure)) {
    return errorText(idText, RPC_CODES.internalError, "Cannot answer: internal error");
  }
  return errorText(
    idText,
    CODES[thrown.kind] ?? RPC_CODES.internalError,
    thrown.message,
    shownOf(thrown.facts),
  );
}

function shownOf(facts: FailureFacts | undefined): Record<string, unknown> | undefined {
  if (facts === undefined) return undefined;
  const shown = SHOWN.filter((name) => facts[name] !== undefined).map((name) => [name, facts[name]]);
  return shown.length === 0 ? undefined : Object.fromEntries(shown);
}
