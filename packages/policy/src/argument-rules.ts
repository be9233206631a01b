import { textKeyOf } from "./cel/guard.ts";
import type { FieldPath } from "./event/field-table.ts";
import type { Rule } from "./rule.ts";

const ARGUMENTS: FieldPath = "mcp.request.arguments";

/** Rules in force that look at what a call of a tool is given, or whether it is given anything. */
export function argumentRules(rules: readonly Rule[]): readonly Rule[] {
  return rules.filter(
    ({ isEnabled, reads }) => isEnabled && (reads.values.has(ARGUMENTS) || reads.presence.has(ARGUMENTS)),
  );
}

/** Says yes where some call of this tool could match, as far as names and the event's type tell. */
export function mayConcernTool({ condition, guard }: Rule, server: string, tool: string): boolean {
  const mayBe = (path: FieldPath, name: string) =>
    textKeyOf(condition.expression, path)?.equal.has(name) !== false;
  return (
    guard.types?.has("mcp.tool_call") !== false &&
    mayBe("mcp.server.name", server) &&
    mayBe("mcp.tool_call.name", tool)
  );
}
