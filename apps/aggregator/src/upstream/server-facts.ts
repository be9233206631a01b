import { membersOf } from "@capsem/mcp-protocol";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { rude } from "./failure.ts";
import type { ServerFacts } from "./session.ts";

/** Longer instructions would make each client's start heavy; the largest known are a few thousand. */
const INSTRUCTIONS_CHARACTERS_MAX = 262_144;

/** Of a result of `initialize`, or of `server/discover` with `info` from its `_meta`. */
export function factsOf(
  members: ReadonlyMap<string, string>,
  info: string | undefined,
  protocol: string,
  era: ServerFacts["era"],
): ServerFacts {
  const named = info?.startsWith("{") === true ? membersOf(info) : new Map<string, string>();
  const capabilities = members.get("capabilities") ?? "{}";
  if (!capabilities.startsWith("{")) throw rude("says no capabilities");
  const instructions = textOf(members.get("instructions"));
  if (instructions !== null && instructions.length > INSTRUCTIONS_CHARACTERS_MAX) {
    throw rude("has instructions that are too long");
  }
  return {
    name: textOf(named.get("name"))?.slice(0, UPSTREAM_LIMITS.wordsCharactersMax) ?? "",
    version: textOf(named.get("version"))?.slice(0, UPSTREAM_LIMITS.wordsCharactersMax) ?? "",
    ...{ protocol, era, capabilities, instructions },
  };
}

/** A string member's value; null where it is none. */
export function textOf(text: string | undefined): string | null {
  return text?.startsWith('"') === true ? (JSON.parse(text) as string) : null;
}

/** Names of the capabilities, and of those inside one. */
export function capabilityNames(capabilities: string): ReadonlySet<string> {
  const names = new Set<string>();
  for (const [name, value] of membersOf(capabilities)) {
    if (value === "null" || value === "false") continue;
    names.add(name);
    if (!value.startsWith("{")) continue;
    for (const [inner, text] of membersOf(value)) if (text === "true") names.add(`${name}.${inner}`);
  }
  return names;
}
