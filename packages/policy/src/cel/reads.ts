import { onceEach } from "../once-each.ts";
import { childrenOf, type Expression } from "./expression.ts";

/** What a condition reads of an event. */
export interface Reads {
  /** Fields whose values it uses. */
  readonly values: ReadonlySet<string>;
  /** Fields, or names above fields, that it only asks `has` of. */
  readonly presence: ReadonlySet<string>;
}

export const readsOf = onceEach((expression: Expression): Reads => {
  const values = new Set<string>();
  const presence = new Set<string>();
  const walk = (part: Expression): void => {
    if (part.kind === "field") values.add(part.path);
    else if (part.kind === "has") presence.add(part.path);
    else for (const child of childrenOf(part)) walk(child);
  };
  walk(expression);
  return { values, presence };
});
