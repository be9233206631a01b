import type { McpToolInfo } from "@capsem/api";

/** Each approval for always is one of these. */
const RULES_TOLD_MAX = 3;

/**
 * What a list of tools cannot say: which rules look at arguments, so that a call with some may meet another decision
 * than one without. Null where there is none.
 */
export function byArguments(tools: readonly Pick<McpToolInfo, "argument_rules">[]): string | null {
  const texts = tools.flatMap(({ argument_rules: rules }) =>
    rules.map(({ rule_id, action }) => `${rule_id} (${action})`),
  );
  const found = [...new Set(texts)];
  if (found.length === 0) return null;
  const more = found.length - RULES_TOLD_MAX;
  const names = [...found.slice(0, RULES_TOLD_MAX), ...(more > 0 ? [`${more} more`] : [])].join(", ");
  return `CALL is that of a call without arguments; these rules look at them: ${names}`;
}
