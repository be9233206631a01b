import { type FieldKind, fieldRow } from "../event/field-table.ts";
import { POLICY_LIMITS } from "../limits.ts";
import { childrenOf, type Expression } from "./expression.ts";
import { ExpressionProblem } from "./problem.ts";

const BODY_KIB = POLICY_LIMITS.bodyBytesMax / 1024;
const TEXT_KIB = POLICY_LIMITS.textBytesMax / 1024;
/** The long texts of one list are bounded together, so a loop over it reads no more than that in all. */
const ITEM_KIB = (POLICY_LIMITS.listBytesMax / POLICY_LIMITS.itemsMax + POLICY_LIMITS.keptBytes) / 1024;
/** Two texts are mostly told apart by their length or their beginning. */
const COMPARE_PER_KIB = 0.25;

/** Text that a loop variable holds in the worst event, by slot. */
type LocalKib = readonly number[];

/** Throws when the worst event that the bounds admit would take too long. */
export function checkCost(expression: Expression): number {
  const steps = costOf(expression, []);
  if (steps <= POLICY_LIMITS.costMax) return steps;
  const text = `it may take ${Math.ceil(steps)} steps for one event, limit ${POLICY_LIMITS.costMax}`;
  throw new ExpressionProblem("too_costly", text, expression.at);
}

function costOf(expression: Expression, locals: LocalKib): number {
  if (expression.kind === "loop") {
    const inner = [...locals, itemKib(expression.range, locals)];
    return (
      costOf(expression.range, locals) + itemCount(expression.range) * (1 + costOf(expression.body, inner))
    );
  }
  let steps = 1;
  for (const child of childrenOf(expression)) steps += costOf(child, locals);
  if (expression.kind === "call") {
    steps += expression.prepared.costPerKib * textKib(expression.args[0], locals);
  } else if (expression.kind === "binary") {
    const kib = textKib(expression.left, locals) + textKib(expression.right, locals);
    steps += kib * COMPARE_PER_KIB;
    if (expression.operator === "in") steps += itemCount(expression.right);
  }
  return steps;
}

const KIB: Readonly<Record<FieldKind, number>> = {
  bool: 0,
  int: 0,
  double: 0,
  text: TEXT_KIB,
  upper: TEXT_KIB,
  lower: TEXT_KIB,
  host: 1,
  ip: 1,
  path: TEXT_KIB,
  body: BODY_KIB,
  texts: BODY_KIB,
  headers: BODY_KIB,
  json: BODY_KIB,
  jsons: BODY_KIB,
};

/** KiB of text in the value, at most. */
function textKib(expression: Expression | undefined, locals: LocalKib): number {
  switch (expression?.kind) {
    case "field":
      return KIB[fieldRow(expression.path)?.kind ?? "body"];
    case "local":
      return locals[expression.slot] ?? BODY_KIB;
    case "member":
      return textKib(expression.of, locals);
    case "literal":
      return typeof expression.value === "string" ? expression.value.length / 1024 : 0;
    case "choose":
      return Math.max(textKib(expression.whenTrue, locals), textKib(expression.whenFalse, locals));
    case "list":
    case "call":
    case "binary":
      return childrenOf(expression).reduce((sum, child) => sum + textKib(child, locals), 0);
    case "loop":
      return itemCount(expression.range) * itemKib(expression, locals);
    default:
      return 0;
  }
}

/** KiB of text in one item of a list, at most. */
function itemKib(list: Expression, locals: LocalKib): number {
  switch (list.kind) {
    case "list":
      return Math.max(0, ...list.items.map((item) => textKib(item, locals)));
    case "field":
      return ITEM_KIB;
    case "loop": {
      const item = itemKib(list.range, locals);
      return list.form === "map" ? textKib(list.body, [...locals, item]) : item;
    }
    case "member":
    case "local":
      return Math.min(ITEM_KIB, textKib(list, locals));
    default:
      return Math.max(0, ...childrenOf(list).map((child) => itemKib(child, locals)));
  }
}

function itemCount(list: Expression): number {
  switch (list.kind) {
    case "list":
      return list.items.length;
    case "loop":
      return itemCount(list.range);
    case "binary":
      return itemCount(list.left) + itemCount(list.right);
    default:
      return POLICY_LIMITS.itemsMax;
  }
}
