import { childrenOf, type Expression } from "./cel/expression.ts";
import { guardOf } from "./cel/guard.ts";
import {
  type EventType,
  fieldArrival,
  isEventType,
  toCome,
  typeArrival,
  typesThatMake,
} from "./event/event-table.ts";
import { onceEach } from "./once-each.ts";
import type { Rule } from "./rule.ts";

type Types = ReadonlySet<EventType>;

const MADE: Types = new Set(typesThatMake([]));
const NONE: Types = new Set();
const either = (a: Types, b: Types): Types => new Set([...a, ...b]);
const both = (a: Types, b: Types): Types => new Set([...a].filter((type) => b.has(type)));

/** The types of this version's events that a rule may match. It never leaves one out that it does. */
export function typesSeen({ condition }: Rule): Types {
  return seenBy(condition.expression);
}

const seenBy = onceEach((expression: Expression) => seen(true, expression));

function seen(result: boolean, expression: Expression): Types {
  switch (expression.kind) {
    case "not":
      return seen(!result, expression.of);
    case "and":
    case "or": {
      const [left, right] = [seen(result, expression.left), seen(result, expression.right)];
      return (expression.kind === "and") === result ? both(left, right) : either(left, right);
    }
    case "literal":
      return expression.value === result ? MADE : NONE;
    case "has":
    case "has_member":
    case "choose":
      return result ? seenByGuard(expression) : MADE;
    default: {
      const { types } = guardOf(expression);
      const makers = seenByGuard(expression);
      if (!result || types === undefined) return makers;
      return new Set([...makers].filter((type) => types.has(type)));
    }
  }
}

function seenByGuard(expression: Expression): Types {
  return new Set(typesThatMake(guardOf(expression).needs));
}

/** How many names of one kind a message holds. */
const NAMES_MAX = 3;

/** What a rule that sees nothing waits for: `"http.host" comes with the network`. */
export function awaited({ reads, condition }: Rule): string {
  const names = new Map<string, string>();
  const paths = [...reads.values, ...reads.presence];
  for (const path of paths) {
    const arrival = fieldArrival(path);
    if (arrival !== undefined) names.set(path, arrival);
  }
  if (names.size === 0) {
    for (const type of typesNamedIn(condition.expression)) {
      const arrival = typeArrival(type);
      if (arrival !== undefined) names.set(type, arrival);
    }
  }
  // Some event has each of them; none that this rule is about has all.
  for (const path of names.size === 0 ? paths : []) {
    const row = toCome(path);
    if (row !== undefined) names.set(path, row.arrival);
  }
  const arrivals = [...new Set(names.values())];
  return arrivals
    .map((arrival) => {
      const those = [...names].filter(([, when]) => when === arrival).map(([name]) => `"${name}"`);
      const left = those.length - NAMES_MAX;
      const listed = those.slice(0, NAMES_MAX).join(", ");
      return `${listed}${left > 0 ? ` and ${left} more` : ""} ${those.length === 1 ? "comes" : "come"} ${arrival}`;
    })
    .join("; ");
}

function typesNamedIn(expression: Expression): EventType[] {
  if (expression.kind === "literal") {
    const { value } = expression;
    return typeof value === "string" && isEventType(value) ? [value] : [];
  }
  return childrenOf(expression).flatMap(typesNamedIn);
}
