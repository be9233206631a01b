import type { AskInfo } from "@capsem/api";
import type { Output } from "./output.ts";
import { renderSpan } from "./render.ts";

/** As many characters after `ask_` as are shown, and enough to type. */
export const SHORT_ID_CHARS = 6;
const PREFIX = "ask_";

export function shortId(id: string): string {
  return id.slice(PREFIX.length, PREFIX.length + SHORT_ID_CHARS);
}

export type Scope = NonNullable<AskInfo["scope"]>;

/** Where it happens, as a person calls it. */
export function placeOf({ vm_name: name, vm_id: id }: Pick<AskInfo, "vm_name" | "vm_id">): string {
  return name ?? id ?? "this machine";
}

export function timeLeft({ expires_at: expires }: Pick<AskInfo, "expires_at">, nowMs: number): string {
  const left = (Date.parse(expires) - nowMs) / 1000;
  return Number.isFinite(left) && left > 0 ? `${renderSpan(left)} left` : "no time left";
}

export function tellHeld(output: Output, ask: AskInfo, nowMs: number): Promise<void> {
  const id = shortId(ask.id);
  const why = ask.reason === "" ? "" : `: ${ask.reason}`;
  return output.say(
    [
      `waiting for a person to allow ${ask.title} in ${placeOf(ask)} (rule ${ask.rule_id}${why}; ${timeLeft(ask, nowMs)})`,
      `  from another terminal: capsem asks approve ${id}, or capsem asks deny ${id}`,
    ].join("\n"),
  );
}
