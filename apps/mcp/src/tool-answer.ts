import type { Tool, ToolRequest } from "@capsem/api";
import { TOOL_LIMITS } from "@capsem/api";
import type { TransportAnswer } from "@capsem/sdk";
import { readWindow } from "./file-window.ts";
import { TEXT_MIRROR_BYTES_MAX } from "./limits.ts";

type Value = Record<string, unknown>;
type Arguments = Readonly<Record<string, unknown>>;

/** A route's answer as the tool's result: bytes become a window, and what nobody sized fits the text. */
export async function resultOf(
  tool: Tool,
  args: Arguments,
  request: ToolRequest,
  answer: unknown,
): Promise<Value> {
  switch (tool.route) {
    case "fileRead":
      return { ...(await readWindow(answer as TransportAnswer, windowRequestOf(args, request))) };
    case "timeline":
    case "history":
    case "fileList": {
      const list = answer as Value & { entries: readonly unknown[] };
      if (args.limit !== undefined) return list;
      const entries = fitting(list.entries, list, "first");
      return entries.length === list.entries.length ? list : { ...list, entries, more: true };
    }
    case "logs":
    case "hostLogs": {
      const window = answer as Value & { lines: readonly unknown[] };
      if (args.max_bytes !== undefined) return window;
      const lines = fitting(window.lines, window, "last");
      return lines.length === window.lines.length ? window : { ...window, lines, truncated: true };
    }
    default:
      return answer as Value;
  }
}

function windowRequestOf(args: Arguments, { query = {} }: ToolRequest) {
  return {
    offset: Number(query.offset ?? 0),
    bytesMax: Number(query.length ?? TOOL_LIMITS.windowBytes),
    encoding: args.encoding as "utf8" | "base64" | undefined,
    fitsText: args.max_bytes === undefined,
  };
}

/** As many of the first or last items as the text mirror holds with the rest of the object. */
function fitting(items: readonly unknown[], whole: Value, keep: "first" | "last"): readonly unknown[] {
  let over = Buffer.byteLength(JSON.stringify(whole)) - TEXT_MIRROR_BYTES_MAX;
  if (over <= 0) return items;
  const dropped = keep === "first" ? [...items].reverse() : items;
  let count = 0;
  for (const item of dropped) {
    if (over <= 0) break;
    over -= Buffer.byteLength(JSON.stringify(item)) + 1;
    count += 1;
  }
  return keep === "first" ? items.slice(0, items.length - count) : items.slice(count);
}

/** What a reader does about a result that is over the text. */
export function hintOf(tool: Tool): string {
  switch (tool.route) {
    case "run":
      return "To read it in windows, use capsem_create and capsem_exec with the output in a file, then capsem_read_file.";
    case "exec":
      return "To read it in windows, send the output to a file and use capsem_read_file with offset and max_bytes.";
    case "fileRead":
      return "Ask for a smaller window with offset and max_bytes.";
    case "mcpCall":
      return "Ask the tool for less.";
    case "mcpTools":
    case "mcpRefresh":
      return "tools has their names, what a call meets, and whether a person approved them.";
    case "timeline":
    case "history":
      return "Ask for fewer entries with limit.";
    case "logs":
    case "hostLogs":
      return "Ask for less with tail, grep or max_bytes.";
    default:
      return "Ask for one part of it, or for fewer entries.";
  }
}
