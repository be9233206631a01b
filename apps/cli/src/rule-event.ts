import type { Args } from "./args.ts";
import { usageError } from "./cli-error.ts";
import type { Context } from "./context.ts";
import { EVENT_TEXT_BYTES_MAX } from "./limits.ts";
import { readText } from "./text-input.ts";

export interface GivenEvent {
  readonly type: string;
  readonly fields: Record<string, unknown>;
}

/** What an exec that says no more is judged with. */
const ASSUMED = {
  "process.exec.user": "user",
  "process.exec.cwd": "/workspace",
  "process.exec.env_names": [],
  "process.exec.has_stdin": false,
} as const;

/** The event to judge, in one of three ways: a command, a type with fields, or a file. */
export async function eventOf({ powers }: Pick<Context, "powers">, args: Args): Promise<GivenEvent> {
  const [command, type, file] = ["command", "type", "event"].map((name) => args.text(name));
  if ([command, type, file].filter((each) => each !== undefined).length !== 1)
    throw usageError("Cannot use rules evaluate: give one of --command, --type with --field, or --event");
  if (file !== undefined) {
    if (args.flag("field")) throw usageError("Cannot use --field with --event: the file has the fields");
    return parseEvent(await readText(powers, file, EVENT_TEXT_BYTES_MAX));
  }
  const fields = Object.fromEntries(args.all("field").map(fieldOf));
  if (command !== undefined)
    return { type: "process.exec", fields: { ...ASSUMED, "process.command": command, ...fields } };
  return { type: type ?? "", fields };
}

/** A value that is JSON is that; anything else is the text it is. Quotes make a text of a number. */
function fieldOf(word: string): [string, unknown] {
  const equals = word.indexOf("=");
  if (equals <= 0) throw usageError(`Cannot use --field ${JSON.stringify(word)}: KEY=VALUE is needed`);
  const text = word.slice(equals + 1);
  try {
    return [word.slice(0, equals), JSON.parse(text)];
  } catch {
    return [word.slice(0, equals), text];
  }
}

/** As rules know it, or as `capsem events --json` has it: with the event inside. */
function parseEvent(text: string): GivenEvent {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw usageError(
      `Cannot read the event: it is not JSON (${cause instanceof Error ? cause.message : ""})`,
    );
  }
  const outer = record(value);
  const event = record(outer?.event) ?? outer;
  const type = event?.type ?? outer?.type;
  const fields = record(event?.fields) ?? (outer?.event === undefined ? null : event);
  if (typeof type === "string" && fields !== null) return { type, fields };
  throw usageError(
    'Cannot read the event: {"type": "process.exec", "fields": {"process.command": "…"}} is its form',
  );
}

function record(value: unknown): Record<string, unknown> | null {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : null;
}
