import { createHash } from "node:crypto";
import type { ContractParams, PROXY_SERVICE_METHODS } from "@capsem/api";
import { Failure } from "@capsem/base";
import { PIN_LIMITS } from "./limits.ts";
import { type Definition, type PinnedTool, type ServerRecord, stateOf } from "./pin-record.ts";

export type PinReport = ContractParams<typeof PROXY_SERVICE_METHODS, "pins.report">;
type ReportedTool = PinReport["tools"][number];

/** What became of one tool by a report. */
export interface PinChange {
  readonly tool: PinnedTool;
  readonly before: PinnedTool | null;
}

/** Throws Failure "too_large" or "invalid_input": nothing of such a report counts. */
export function checkReport({ server, tools }: PinReport): void {
  const { toolsMax, reportCharactersMax, definitionCharactersMax, nameCharactersMax } = PIN_LIMITS;
  const cannot = (kind: string, why: string) =>
    new Failure(kind, `Cannot take the tools of "${server}": ${why}`);
  if (tools.length > toolsMax) throw cannot("too_large", `it lists ${tools.length}, limit ${toolsMax}`);
  let characters = 0;
  const names = new Set<string>();
  for (const { name, definition, canonical, hash } of tools) {
    if (name === "" || name.length > nameCharactersMax)
      throw cannot("invalid_input", "one has no name, or a long one");
    if (names.has(name)) throw cannot("invalid_input", "two have one name");
    names.add(name);
    characters += definition.length + canonical.length;
    if (definition.length > definitionCharactersMax || canonical.length > definitionCharactersMax * 2) {
      throw cannot("too_large", "a definition is too long");
    }
    // What a person approves is what the text says, whoever computed its name.
    if (createHash("sha256").update(canonical).digest("hex") !== hash) {
      throw cannot("invalid_input", "a definition has another hash");
    }
  }
  if (characters > reportCharactersMax) throw cannot("too_large", "all definitions together are too long");
}

/**
 * What is known of a server after a report. The first sight of it approves what it has then; afterwards nothing is
 * approved by itself. `isOurs`: whatever we ship is approved.
 */
export function withReport(
  known: ServerRecord | null,
  report: PinReport,
  { now, isOurs }: { readonly now: string; readonly isOurs: boolean },
): { record: ServerRecord; changes: PinChange[] } {
  const isApproved = known === null || isOurs;
  const before = new Map((known?.tools ?? []).map((tool) => [tool.name, tool]));
  const listed = report.tools.map((tool): PinnedTool => {
    const current = definitionOf(tool);
    const old = before.get(tool.name);
    if (old === undefined)
      return { name: tool.name, first_seen_at: now, ...approval(isApproved, current, now), current };
    return isOurs && old.approved?.hash !== current.hash
      ? { ...old, approved: current, approved_at: now, current }
      : { ...old, current };
  });
  const names = new Set(listed.map(({ name }) => name));
  // One that nobody approved, and that is gone, never was.
  const gone = [...before.values()]
    .filter(({ name, approved }) => !names.has(name) && approved !== null && !isOurs)
    .slice(0, PIN_LIMITS.toolsMax)
    .map((tool): PinnedTool => ({ ...tool, current: null }));
  const tools = [...listed, ...gone];
  const record: ServerRecord = {
    ...{ version: 1, server: report.server, first_seen_at: known?.first_seen_at ?? now, seen_at: now },
    ...{ info: report.info, tools },
  };
  const changes = tools.flatMap((tool) => {
    const old = before.get(tool.name) ?? null;
    return old !== null && isSame(old, tool) ? [] : [{ tool, before: old }];
  });
  return { record, changes };
}

function approval(isApproved: boolean, current: Definition, now: string) {
  return { approved: isApproved ? current : null, approved_at: isApproved ? now : null };
}

function definitionOf({ definition, canonical, hash, title, description }: ReportedTool): Definition {
  const cut = (text: string | null) => text?.slice(0, PIN_LIMITS.shownCharactersMax) ?? null;
  return { hash, text: definition, canonical, title: cut(title), description: cut(description) };
}

function isSame(old: PinnedTool, tool: PinnedTool): boolean {
  return stateOf(old) === stateOf(tool) && old.current?.hash === tool.current?.hash;
}
