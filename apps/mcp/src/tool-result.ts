import type { McpToolInfo, StreamData } from "@capsem/api";
import { NAMED_TOOL_CHARS_MAX, NAMED_TOOLS_MAX, OUTPUT_TAIL_CHARS, TEXT_MIRROR_BYTES_MAX } from "./limits.ts";
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

const STREAMS = ["stdout", "stderr"] as const;
type StreamName = (typeof STREAMS)[number];

function noteOf(value: Record<string, unknown>, bytes: number, hint: string): Record<string, unknown> {
  const cuts = STREAMS.flatMap((stream) => cutOf(value, stream));
  const isPart = cuts.length > 0 || value.truncated === true || value.more === true;
  const where = isPart
    ? "structuredContent has what was kept, which is not all"
    : "it is whole in structuredContent";
  const size = `The result is ${bytes} bytes, over the ${TEXT_MIRROR_BYTES_MAX} shown as text; ${where}.`;
  const note = [size, ...cuts, hint].join(" ");
  const output = { ...outputOf(value, "stdout"), ...outputOf(value, "stderr") };
  return { note, bytes, ...flagsOf(value), ...output, ...toolsOf(value) };
}

/** Of a server's tools the names: their definitions are what is long. */
function toolsOf({ tools }: Record<string, unknown>): { tools?: string[] } {
  if (!Array.isArray(tools)) return {};
  const listed = tools as readonly Pick<McpToolInfo, "name" | "pin" | "decision">[];
  const words = listed.map(({ name, pin, decision }) => `${name} (${decision}, ${pin})`);
  return { tools: words.slice(0, NAMED_TOOLS_MAX).map((word) => word.slice(0, NAMED_TOOL_CHARS_MAX)) };
}

/** Small words of a result that say how it ended and whether it is all. */
const FLAGS = [
  "exit_code",
  "signal",
  "timed_out",
  "truncated",
  "more",
  "size",
  "total",
  "is_error",
  "event_id",
] as const;

function flagsOf(value: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(FLAGS.flatMap((name) => (name in value ? [[name, value[name]]] : [])));
}

/** The service keeps the first bytes of a stream: of a truncated one no end is known. */
function cutOf(value: Record<string, unknown>, stream: StreamName): string[] {
  const output = value[stream] as StreamData | undefined;
  if (output?.truncated !== true) return [];
  const kept = Buffer.byteLength(output.data, output.encoding);
  const all = output.total_bytes === undefined ? "" : ` of ${output.total_bytes}`;
  return [
    `${stream} was truncated: its first ${kept}${all} bytes were kept and the rest is lost, ${stream}_tail is the end of that part.`,
  ];
}

function outputOf(value: Record<string, unknown>, stream: StreamName): Record<string, unknown> {
  const output = value[stream] as StreamData | undefined;
  return output?.truncated === true
    ? { [`${stream}_truncated`]: true, ...tailOf(output, stream) }
    : tailOf(output, stream);
}

/** A command's last words are what a reader needs first. */
function tailOf(output: StreamData | undefined, stream: StreamName): Record<string, string> {
  if (output === undefined || output.encoding !== "utf8" || output.data === "") return {};
  const start = Math.max(0, output.data.length - OUTPUT_TAIL_CHARS);
  // Not from the middle of a pair that makes one character.
  const isSplit = /[\uDC00-\uDFFF]/.test(output.data.charAt(start));
  return { [`${stream}_tail`]: output.data.slice(start + (isSplit ? 1 : 0)) };
}
