import { onceEach } from "../once-each.ts";
import type { Expression } from "./expression.ts";

type Paths = ReadonlySet<string>;

/**
 * What must hold of an event for a condition to be true, read off without evaluating it.
 * Both parts are necessary, never sufficient: an index may skip what fails them, and decides nothing.
 */
export interface Guard {
  /** Fields, or names above fields, that must be there. */
  readonly needs: Paths;
  /** One text field other than the event's type, of which one of these must hold. */
  readonly key: Key | undefined;
  /** The event's type must be one of these. */
  readonly types: Paths | undefined;
}

export interface Key {
  readonly path: string;
  readonly equal: Paths;
  /** Domains that the host must be or lie below. */
  readonly within: Paths;
}

export const guardOf = onceEach(
  (expression: Expression): Guard => ({
    needs: neededFor(true, expression),
    key: keyOf(expression, (path) => path !== TYPE),
    types: keyOf(expression, (path) => path === TYPE)?.equal,
  }),
);

const TYPE = "event.type";
const NONE: Paths = new Set<string>();
const union = (...sets: readonly Paths[]): Paths => new Set(sets.flatMap((set) => [...set]));
const common = (a: Paths, b: Paths): Paths => new Set([...a].filter((path) => b.has(path)));

/** Without these the expression has no value, whatever the rest of the event is. */
function neededForValue(expression: Expression): Paths {
  switch (expression.kind) {
    case "literal":
    case "local":
    case "has":
    case "has_member":
      return NONE;
    case "field":
      return new Set([expression.path]);
    case "not":
    case "negate":
      return neededForValue(expression.of);
    case "member":
      return union(neededForValue(expression.of), neededForValue(expression.key));
    case "call":
      return union(...expression.args.map(neededForValue));
    case "list":
      return union(...expression.items.map(neededForValue));
    case "binary":
      return union(neededForValue(expression.left), neededForValue(expression.right));
    case "and":
    case "or":
      return common(neededForValue(expression.left), neededForValue(expression.right));
    case "choose":
      return union(
        neededForValue(expression.test),
        common(neededForValue(expression.whenTrue), neededForValue(expression.whenFalse)),
      );
    case "loop":
      return neededForValue(expression.range);
  }
}

/** Without these the expression is not `result`: it is the other one, or has no value. */
function neededFor(result: boolean, expression: Expression): Paths {
  switch (expression.kind) {
    case "not":
      return neededFor(!result, expression.of);
    case "and":
    case "or": {
      const [left, right] = [neededFor(result, expression.left), neededFor(result, expression.right)];
      return (expression.kind === "and") === result ? union(left, right) : common(left, right);
    }
    case "has":
      return result ? new Set([expression.path]) : NONE;
    case "has_member":
      return result ? neededForValue(expression.of) : NONE;
    case "choose":
      return union(
        neededForValue(expression.test),
        common(neededFor(result, expression.whenTrue), neededFor(result, expression.whenFalse)),
      );
    default:
      return neededForValue(expression);
  }
}

/** Texts of this field of which one must hold; undefined where the condition may be true with any. */
export function textKeyOf(expression: Expression, path: string): Key | undefined {
  return keyOf(expression, (each) => each === path);
}

/** The more a field tells events apart, the earlier; what is not listed comes between. */
const TELLING = ["mcp.tool_call.name", "http.host", "dns.qname", "process.exec.path", "mcp.server.name"];
const COMMON = ["http.method", "mcp.method"];

function weight(key: Key): number {
  if (TELLING.includes(key.path)) return TELLING.indexOf(key.path);
  return COMMON.includes(key.path) ? 20 + COMMON.indexOf(key.path) : 10;
}

function keyOf(expression: Expression, isWanted: (path: string) => boolean): Key | undefined {
  switch (expression.kind) {
    case "and": {
      const [left, right] = [keyOf(expression.left, isWanted), keyOf(expression.right, isWanted)];
      if (left === undefined || right === undefined) return left ?? right;
      return weight(left) <= weight(right) ? left : right;
    }
    case "or": {
      const [left, right] = [keyOf(expression.left, isWanted), keyOf(expression.right, isWanted)];
      if (left === undefined || left.path !== right?.path) return undefined;
      return {
        path: left.path,
        equal: union(left.equal, right.equal),
        within: union(left.within, right.within),
      };
    }
    case "binary":
    case "call": {
      const key =
        expression.kind === "call" ? domainKey(expression.args, expression.name) : equalityKey(expression);
      return key !== undefined && isWanted(key.path) ? key : undefined;
    }
    default:
      return undefined;
  }
}

function equalityKey(expression: Extract<Expression, { kind: "binary" }>): Key | undefined {
  const { operator, left, right } = expression;
  if (operator === "==") {
    const [field, other] = left.kind === "field" ? [left, right] : [right, left];
    return field.kind === "field" ? textKey(field.path, [other]) : undefined;
  }
  return operator === "in" && left.kind === "field" && right.kind === "list"
    ? textKey(left.path, right.items)
    : undefined;
}

function textKey(path: string, items: readonly Expression[]): Key | undefined {
  const texts = textsOf(items);
  return texts === undefined ? undefined : { path, equal: new Set(texts), within: NONE };
}

function domainKey(args: readonly Expression[], name: string): Key | undefined {
  const [field, domains] = args;
  if (name !== "host_in" || field?.kind !== "field" || domains === undefined) return undefined;
  const texts = textsOf(domains.kind === "list" ? domains.items : [domains]);
  return texts === undefined ? undefined : { path: field.path, equal: NONE, within: new Set(texts) };
}

function textsOf(items: readonly Expression[]): string[] | undefined {
  const texts: string[] = [];
  for (const item of items) {
    if (item.kind !== "literal" || typeof item.value !== "string") return undefined;
    texts.push(item.value);
  }
  return texts;
}
