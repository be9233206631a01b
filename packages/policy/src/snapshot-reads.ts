import { fieldsMadeWith } from "./event/event.ts";
import { canBeCut, type FieldPath, fieldRow, structsAbove } from "./event/field-table.ts";
import type { Rule } from "./rule.ts";

/**
 * Answers whether some rule reads a field, so that nobody collects what no rule asks for. It says yes where a
 * decision could depend on the field in any way: `has` of a name above it, a field that is made of it, and
 * `truncated` of its root where it can be cut.
 */
export function createReads(rules: readonly Rule[]): (path: FieldPath) => boolean {
  const values = new Set<string>();
  const presence = new Set<string>();
  for (const { reads } of rules) {
    for (const path of reads.values) values.add(path);
    for (const path of reads.presence) presence.add(path);
  }
  const isRead = (path: string) =>
    values.has(path) || presence.has(path) || structsAbove(path).some((struct) => presence.has(struct));
  return (path) => {
    const row = fieldRow(path);
    if (row !== undefined && canBeCut(row) && values.has(`${path.slice(0, path.indexOf("."))}.truncated`)) {
      return true;
    }
    return isRead(path) || fieldsMadeWith(path).some(isRead);
  };
}
