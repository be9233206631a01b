import type { McpPinInfo, McpToolInfo } from "@capsem/api";
import { type Color, colorOf, type Paint, paintOf } from "./paint.ts";
import type { Powers } from "./powers.ts";
import { type Cell, counted, printable, renderTable } from "./render.ts";

const PIN_WORDS: Readonly<Record<McpPinInfo["pin"], string>> = {
  pinned: "approved",
  changed: "changed",
  new: "new",
  gone: "gone",
};
const PIN_COLORS: Readonly<Record<McpPinInfo["pin"], Color | null>> = {
  pinned: null,
  changed: "red",
  new: "yellow",
  gone: "dim",
};

/** Whether its definition is the one that was approved. */
export function pinCell(pin: McpPinInfo["pin"]): Cell {
  return { text: PIN_WORDS[pin], color: PIN_COLORS[pin] };
}

/** Nobody may call it as it is now before a person has looked. */
export function isWaiting({ pin }: Pick<McpPinInfo, "pin">): boolean {
  return pin === "changed" || pin === "new";
}

export function toolTable(tools: readonly McpToolInfo[], powers: Powers): string {
  const rows = tools.map((tool): Cell[] => [
    tool.name,
    { text: tool.decision, color: colorOf(tool.decision) },
    tool.permission,
    pinCell(tool.pin),
    oneLine(tool.description ?? tool.title ?? ""),
  ]);
  const head = ["TOOL", "CALL", "PERMISSION", "DEFINITION", "DESCRIPTION"];
  return renderTable(head, rows, powers.stdout.size()?.cols, paintOf(powers), ["DESCRIPTION", "TOOL"]);
}

/** Lines of what was approved (-) and of what the server says now (+), below a heading. */
export function differenceText(pin: McpPinInfo, paint: Paint): string {
  const lines = pin.difference.map((line) => {
    const text = printable(line);
    if (line.startsWith("+ ")) return paint(text, "green");
    return line.startsWith("- ") ? paint(text, "red") : text;
  });
  return [`${printable(pin.tool)}: ${DIFFERS[pin.pin]}`, ...lines, ""].join("\n");
}

const DIFFERS: Readonly<Record<McpPinInfo["pin"], string>> = {
  pinned: "is what was approved",
  changed: "has changed since it was approved (- approved, + now)",
  new: "is new, and was never approved (+ now)",
  gone: "is not there any more (- approved)",
};

export function waitingText(server: string, count: number): string {
  const what = count === 1 ? "1 tool waits" : `${counted(count, "tool")} wait`;
  return `${what} for approval: capsem mcp pins ${server}`;
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}
