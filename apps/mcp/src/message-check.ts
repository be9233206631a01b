import { type JSONRPCMessage, ProtocolErrorCode } from "./mcp-sdk.ts";
import { markProtoArgument } from "./proto-argument.ts";

/** A line that is no message, as the error that answers it. */
export interface Refusal {
  readonly kind: "refusal";
  readonly id: string | number | null;
  readonly code: number;
  readonly message: string;
}

export type Checked = Refusal | { readonly kind: "message"; readonly message: JSONRPCMessage };

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Null: an empty line. The message is checked as JSON-RPC; its params are the SDK's to check. */
export function checkMessage(line: Uint8Array): Checked | null {
  let value: unknown;
  try {
    const text = UTF8.decode(line);
    if (text.trim() === "") return null;
    value = JSON.parse(text);
  } catch (thrown) {
    // A lenient decoder would change the content of a file on its way.
    return refusal("unparsed", thrown instanceof SyntaxError ? "it is not JSON" : "it is not UTF-8");
  }
  if (Array.isArray(value)) return refusal("invalid", "batches are not part of this protocol");
  if (typeof value !== "object" || value === null) return refusal("invalid", "it is no object");
  const message = value as Record<string, unknown>;
  const { id, method, params } = message;
  const isId = typeof id === "string" || Number.isSafeInteger(id);
  const shownId = isId ? (id as string | number) : null;
  if (message.jsonrpc !== "2.0") return refusal("invalid", "jsonrpc is not 2.0", shownId);
  if (id !== undefined && !isId)
    return refusal("invalid", "its id is no text and no whole number up to 2^53 - 1", null);
  if (method === undefined) {
    const isAnswer = id !== undefined && ("result" in message || "error" in message);
    if (!isAnswer) return refusal("invalid", "it has no method", shownId);
  } else {
    if (typeof method !== "string") return refusal("invalid", "its method is no text", shownId);
    if (params !== undefined && (typeof params !== "object" || params === null || Array.isArray(params)))
      return refusal("invalid", "its params are no object", shownId);
  }
  markProtoArgument(value as JSONRPCMessage);
  return { kind: "message", message: value as JSONRPCMessage };
}

export function refusal(kind: "unparsed" | "invalid", why: string, id: Refusal["id"] = null): Refusal {
  const code = kind === "unparsed" ? ProtocolErrorCode.ParseError : ProtocolErrorCode.InvalidRequest;
  return { kind: "refusal", id, code, message: `Cannot read message: ${why}` };
}
