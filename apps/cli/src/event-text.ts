import type { SecurityEntry } from "@capsem/api";
import type { Color, Paint } from "./paint.ts";
import { colorOf } from "./paint.ts";
import type { Powers } from "./powers.ts";
import { type Cell, cut, printable, renderLocal, renderMoment } from "./render.ts";

const VALUE_CHARS_MAX = 120;

export const EVENT_HEAD = ["TIME", "DECISION", "TYPE", "RULE", "FIELDS"] as const;

/** One line of a table: what was decided by what, and what tells this event from others of its type. */
export function eventRow(entry: SecurityEntry, powers: Powers): Cell[] {
  const detection = entry.detection === "none" ? "" : ` [${entry.detection}]`;
  const fields = fieldsOf(entry).filter(([key, value]) => matters(key, value));
  const texts = fields.map(([key, value]) => `${key}=${short(value)}`);
  const reason = ownReason(entry);
  return [
    renderMoment(entry.time, powers),
    { text: `${entry.action}${detection}`, color: colorOf(entry.action) },
    entry.type,
    entry.rule_id,
    [...texts, ...(reason === null ? [] : [`(${reason})`])].join("  "),
  ];
}

/** Everything of it: the fields that rules saw, and every other rule that matched. */
export function eventText(entry: SecurityEntry, paint: Paint): string {
  const color: Color | null = colorOf(entry.action);
  const action = color === null ? entry.action : paint(entry.action, color);
  const reason = entry.reason === "" ? "" : `: ${printable(entry.reason)}`;
  const detection = entry.detection === "none" ? "" : ` [${printable(entry.detection)}]`;
  const head = `${renderLocal(entry.time)}  ${action}  ${paint(printable(entry.type), "bold")}  by ${printable(entry.rule_id)}${reason}${detection}`;
  const others = entry.matched.filter(({ rule_id: id }) => id !== entry.rule_id);
  const lines = [
    head,
    ...fieldsOf(entry).map(([key, value]) => `    ${printable(key)} = ${printable(short(value))}`),
    ...others.map(
      (each) => `    also matched ${printable(each.rule_id)}: ${each.action} at ${each.priority}`,
    ),
    ...(entry.is_redacted ? ["    secrets in it were replaced"] : []),
  ];
  return `${lines.join("\n")}\n`;
}

/** What every event of its type has says nothing of this one. */
function fieldsOf({ event }: SecurityEntry): [string, unknown][] {
  const inner = event.fields;
  const fields = typeof inner === "object" && inner !== null ? (inner as Record<string, unknown>) : event;
  return Object.entries(fields).filter(
    ([key, value]) =>
      key !== "event.type" &&
      !(key.endsWith(".valid") && value === true) &&
      !(key.endsWith(".truncated") && value === false),
  );
}

/** What its VM and who asks have in all events, what another field says already, and what is as usual. */
const USUAL: Readonly<Record<string, unknown>> = {
  "process.exec.user": "user",
  "process.exec.cwd": "/workspace",
  "process.exec.exit_code": 0,
  "mcp.method": "tools/call",
  "mcp.transport": "framed",
  "mcp.server.pinned": true,
  "mcp.response.is_error": false,
  "label.confidentiality": "public",
  "label.integrity": "trusted",
};
const SAID_ELSEWHERE =
  /^vm\.(id|name|image|lifecycle\.requester)$|^process\.exec\.(id|has_stdin)$|^mcp\.(request\.id|tool_call\.id|request\.method)$|^file\.\w+\.(name|ext)$/;

function matters(key: string, value: unknown): boolean {
  const isEmpty = value === "" || (Array.isArray(value) && value.length === 0);
  const isNothing = isEmpty || (value === false && key.endsWith(".is_tree"));
  return !isNothing && !SAID_ELSEWHERE.test(key) && USUAL[key] !== value;
}

/** A reason that the rule's author gave, and not one that names the rule again. */
function ownReason({ reason, rule_id: rule }: SecurityEntry): string | null {
  const isOwn = reason !== "" && reason !== `rule "${rule}"` && !rule.startsWith("posture.");
  return isOwn ? reason : null;
}

function short(value: unknown): string {
  return cut(JSON.stringify(value) ?? "", VALUE_CHARS_MAX);
}
