import type { TimelineEntry } from "@capsem/api";
import { shortId } from "./ask-text.ts";
import { cut } from "./render.ts";

/** A value that was changed may be a whole rule; more of it is for --json. */
const VALUE_CHARS_MAX = 60;

/** The error of a call that was done, and whose tool says that it failed. */
const TOOL_ERROR = "tool_error";

export function isAct({ layer }: TimelineEntry): boolean {
  return layer !== "rule" && layer !== "ask";
}

/** What one line of a story says, for a person. */
export function timelineText(entry: TimelineEntry): string {
  switch (entry.layer) {
    case "ask":
      return askText(entry);
    case "rule":
      return ruleText(entry);
    case "settings":
      return `${settingText(entry)}${decisionText(entry)}`;
    case "tool":
      return `${entry.title}${argumentsText(entry)}${endText(entry)}${decisionText(entry)}`;
    default:
      return `${entry.title}${endText(entry)}${decisionText(entry)}`;
  }
}

/** The ask by the characters that approve it, what it was about, and who said what to it. */
function askText(entry: TimelineEntry): string {
  const id = textOf(entry, "ask_id");
  const [resolver, scope] = [textOf(entry, "resolver"), textOf(entry, "scope")];
  const note = textOf(entry, "note");
  const how = scope === null || scope === "once" ? "" : ` (${scope})`;
  return [
    id === null ? "" : `${shortId(id)} `,
    withAct(entry),
    resolver === null ? "" : `, by ${resolver}${how}`,
    note === null || note === "" ? "" : `: ${note}`,
  ].join("");
}

function ruleText(entry: TimelineEntry): string {
  const [action, detection] = [textOf(entry, "action"), textOf(entry, "detection")];
  const level = detection === null || detection === "none" ? null : `detection ${detection}`;
  const said = [action, level].filter((each) => each !== null);
  return said.length === 0 ? withAct(entry) : `${withAct(entry)}  [${said.join(", ")}]`;
}

/** What it was about, where the title does not say it. */
function withAct(entry: TimelineEntry): string {
  const act = textOf(entry, "act");
  return act === null || entry.title.includes(act) ? entry.title : `${entry.title}: ${act}`;
}

function settingText(entry: TimelineEntry): string {
  const verb = textOf(entry, "verb");
  const head = verb === null || entry.title.startsWith(`${verb} `) ? entry.title : `${verb} ${entry.title}`;
  const [before, after] = ["before", "after"].map((name) => textOf(entry, name));
  if (before == null && after == null) return head;
  return `${head}: ${valueText(before)} → ${valueText(after)}`;
}

function valueText(value: string | null | undefined): string {
  return value == null ? "-" : cut(value.replace(/\s+/g, " ").trim(), VALUE_CHARS_MAX);
}

/** What a tool was given, as a command line has it of a command. */
function argumentsText(entry: TimelineEntry): string {
  const text = textOf(entry, "arguments");
  return text === null || text === "{}" ? "" : ` ${valueText(text)}`;
}

/** What a person looks for: how it ended, how much it was. */
function endText({ details }: TimelineEntry): string {
  const { exit_code: exit, bytes, detail, error } = details;
  const parts = [
    typeof detail === "string" ? detail : "",
    typeof exit === "number" && exit !== 0 ? `exit ${exit}` : "",
    error === TOOL_ERROR ? "the tool says that it failed" : "",
    typeof bytes === "number" ? `${bytes} bytes` : "",
  ].filter((part) => part !== "");
  return parts.length === 0 ? "" : `  (${parts.join(", ")})`;
}

function decisionText({ decision, rule_id: rule }: TimelineEntry): string {
  return decision === "allow" || rule === null ? "" : `  [${decision} by ${rule}]`;
}

function textOf({ details }: TimelineEntry, name: string): string | null {
  const value = details[name];
  return value === undefined || value === null ? null : String(value);
}
