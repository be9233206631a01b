import { OUTPUT_TAIL_CHARS, TEXT_MIRROR_BYTES_MAX } from "./limits.ts";
import type { CallToolResult } from "./mcp-sdk.ts";
import type { FailureObject } from "./tool-failure.ts";

/** Where the object of a failed call is beside its text. */
export const ERROR_META_KEY = "dev.capsem/error";

/** The text is the same JSON while it is short; many clients show a model the text alone. */
export function successOf(value: Record<string, unknown>, hint: string): CallToolResult {
  const text = JSON.stringify(value);
  const bytes = Buffer.byteLength(text);
  const shown = bytes <= TEXT_MIRROR_BYTES_MAX ? text : JSON.stringify(noteOf(value, bytes, hint));
  return { content: [{ type: "text", text: shown }], structuredContent: value };
}

/** Without structuredContent, which clients would check against the tool's output schema. */
export function errorOf(error: FailureObject): CallToolResult {
  return {
    content: [{ type: "text", text: JSON.stringify({ error }) }],
    isError: true,
    _meta: { [ERROR_META_KEY]: error },
  };
}

function noteOf(value: Record<string, unknown>, bytes: number, hint: string): Record<string, unknown> {
  const note = `The result is ${bytes} bytes, over the ${TEXT_MIRROR_BYTES_MAX} shown as text; it is whole in structuredContent. ${hint}`;
  const { exit_code, signal, timed_out } = value;
  const end = "exit_code" in value ? { exit_code, signal, timed_out } : {};
  return { note, bytes, ...end, ...tailOf(value, "stdout"), ...tailOf(value, "stderr") };
}

/** A command's last words are what a reader needs first. */
function tailOf(value: Record<string, unknown>, stream: "stdout" | "stderr"): Record<string, string> {
  const output = value[stream] as { encoding: string; data: string } | undefined;
  if (output === undefined || output.encoding !== "utf8" || output.data === "") return {};
  const start = Math.max(0, output.data.length - OUTPUT_TAIL_CHARS);
  // Not from the middle of a pair that makes one character.
  const isSplit = /[\uDC00-\uDFFF]/.test(output.data.charAt(start));
  return { [`${stream}_tail`]: output.data.slice(start + (isSplit ? 1 : 0)) };
}
