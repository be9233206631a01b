import { FIELD_PATHS, FIELD_STRUCTS, fieldRow } from "../event/field-table.ts";
import type { CelValue } from "../event/value.ts";
import { POLICY_LIMITS } from "../limits.ts";
import { suggestion } from "../nearest.ts";
import { adviceOnName } from "./advice.ts";
import type { BinaryOperator, Expression, LoopForm } from "./expression.ts";
import { FUNCTIONS } from "./function-table.ts";
import type { CelNode } from "./parse.ts";
import { ExpressionProblem } from "./problem.ts";

const LOOPS: ReadonlySet<string> = new Set(["all", "exists", "exists_one", "filter", "map"]);
const ROOTS: ReadonlySet<string> = new Set([...FIELD_STRUCTS].filter((name) => !name.includes(".")));

/** Names of the loop variables around a node; the index is the slot. */
type Scope = readonly string[];

/** From the library's tree to ours: every name is looked up, everything beyond the language is refused. */
export function resolve(node: CelNode, scope: Scope = []): Expression {
  const at = node.start;
  switch (node.op) {
    case "value":
      return { kind: "literal", value: literalOf(node.args, at), at };
    case "id":
    case ".":
      return resolvePath(node, scope);
    case "[]":
      return {
        kind: "member",
        of: resolve(node.args[0], scope),
        key: resolve(node.args[1], scope),
        at,
      };
    case "call":
      return resolveCall(node.args[0], undefined, node.args[1], scope, node);
    case "rcall":
      return resolveCall(node.args[0], node.args[1], node.args[2], scope, node);
    case "list":
      return { kind: "list", items: node.args.map((item) => resolve(item, scope)), at };
    case "?:": {
      const [test, whenTrue, whenFalse] = node.args;
      return {
        kind: "choose",
        test: resolve(test, scope),
        whenTrue: resolve(whenTrue, scope),
        whenFalse: resolve(whenFalse, scope),
        at,
      };
    }
    case "!_":
      return { kind: "not", of: resolve(node.args, scope), at };
    case "-_":
      return { kind: "negate", of: resolve(node.args, scope), at };
    case "&&":
    case "||":
      return {
        kind: node.op === "&&" ? "and" : "or",
        left: resolve(node.args[0], scope),
        right: resolve(node.args[1], scope),
        at,
      };
    case "map":
    case ".?":
    case "[?]":
      throw new ExpressionProblem("bad_expression", "a rule cannot use this form of CEL", at);
    default:
      return {
        kind: "binary",
        operator: node.op satisfies BinaryOperator,
        left: resolve(node.args[0], scope),
        right: resolve(node.args[1], scope),
        at,
      };
  }
}

function literalOf(value: unknown, at: number): CelValue {
  if (value === null || ["string", "bigint", "number", "boolean"].includes(typeof value)) {
    return value as CelValue;
  }
  throw new ExpressionProblem("bad_literal", "a rule can use texts, numbers, true, false and null", at);
}

/** `root.a.b` as far as it goes down the table; what follows a map is a key of it. */
function resolvePath(node: CelNode, scope: Scope): Expression {
  const at = node.start;
  const dotted = dottedName(node);
  if (dotted === undefined) {
    if (node.op !== ".") throw new ExpressionProblem("bad_expression", "this is no value", at);
    const key = { kind: "literal", value: node.args[1], at: node.pos } as const;
    return { kind: "member", of: resolve(node.args[0], scope), key, at };
  }
  const [root = "", ...rest] = dotted;
  const slot = scope.lastIndexOf(root);
  if (slot >= 0) return members({ kind: "local", slot, at }, rest, at);
  if (!ROOTS.has(root)) {
    const text = adviceOnName(root) ?? `"${root}" is no root${suggestion(root, ROOTS)}`;
    throw new ExpressionProblem("unknown_field", text, at);
  }
  for (let length = 1; length <= dotted.length; length += 1) {
    const path = dotted.slice(0, length).join(".");
    const row = fieldRow(path);
    if (row !== undefined) {
      const field = { kind: "field", path, at } as const;
      if (length === dotted.length) return field;
      if (row.kind === "json" || row.kind === "headers") return members(field, dotted.slice(length), at);
      throw new ExpressionProblem("unknown_field", `"${path}" has nothing below it`, at);
    }
    if (!FIELD_STRUCTS.has(path)) throw unknownField(path, at);
  }
  const path = dotted.join(".");
  throw new ExpressionProblem("unknown_field", `"${path}" is no field, only the name above some`, at);
}

function unknownField(path: string, at: number): ExpressionProblem {
  const root = path.slice(0, path.indexOf("."));
  const near = suggestion(
    path,
    FIELD_PATHS.filter((field) => field.startsWith(`${root}.`)),
  );
  return new ExpressionProblem("unknown_field", `field "${path}" does not exist${near}`, at);
}

function members(of: Expression, keys: readonly string[], at: number): Expression {
  return keys.reduce<Expression>(
    (inner, value) => ({ kind: "member", of: inner, key: { kind: "literal", value, at }, at }),
    of,
  );
}

/** The parts of `a.b.c`; undefined when something else than names is in it. */
function dottedName(node: CelNode): string[] | undefined {
  const parts: string[] = [];
  let at = node;
  while (at.op === ".") {
    parts.push(at.args[1]);
    at = at.args[0];
  }
  return at.op === "id" ? [at.args, ...parts.reverse()] : undefined;
}

function resolveCall(
  name: string,
  receiver: CelNode | undefined,
  args: readonly CelNode[],
  scope: Scope,
  node: CelNode,
): Expression {
  const at = node.start;
  if (name === "has" && receiver === undefined) return resolveHas(args[0], scope, at);
  if (receiver !== undefined && LOOPS.has(name))
    return resolveLoop(name as LoopForm, receiver, args, scope, at);
  const row = FUNCTIONS.get(name);
  if (row === undefined) {
    const known = [...FUNCTIONS.keys(), ...LOOPS, "has"];
    const text = adviceOnName(name) ?? `"${name}" is no function of rules${suggestion(name, known)}`;
    throw new ExpressionProblem("unknown_function", text, node.pos);
  }
  if (row.form !== "either" && (row.form === "receiver") !== (receiver !== undefined)) {
    const text = `write ${row.form === "receiver" ? `text.${name}(…)` : `${name}(…)`}`;
    throw new ExpressionProblem("unknown_function", text, at);
  }
  const all = receiver === undefined ? args : [receiver, ...args];
  const resolved =
    name === "tainted" ? taintedArguments(args, scope, at) : all.map((argument) => resolve(argument, scope));
  return { kind: "call", name, args: resolved, prepared: row.prepare(resolved), at };
}

/** `tainted(label, level)` reads the label's two ordered fields. */
function taintedArguments(args: readonly CelNode[], scope: Scope, at: number): readonly Expression[] {
  const [first, level] = args;
  if (first?.op !== "id" || first.args !== "label" || scope.includes("label") || level === undefined) {
    throw new ExpressionProblem("bad_expression", 'write tainted(label, "untrusted")', at);
  }
  const read = (path: string) => ({ kind: "field", path, at: first.start }) as const;
  const marker = { kind: "literal", value: true, at } as const;
  const fields = [read("label.confidentiality"), read("label.integrity")];
  return [marker, resolve(level, scope), ...fields];
}

function resolveHas(argument: CelNode | undefined, scope: Scope, at: number): Expression {
  if (argument?.op !== ".") throw new ExpressionProblem("bad_expression", "has takes a field", at);
  const dotted = dottedName(argument);
  const path = dotted?.join(".") ?? "";
  if (
    dotted !== undefined &&
    !scope.includes(dotted[0] ?? "") &&
    (FIELD_STRUCTS.has(path) || fieldRow(path))
  ) {
    return { kind: "has", path, at };
  }
  return { kind: "has_member", of: resolve(argument.args[0], scope), key: argument.args[1], at };
}

function resolveLoop(
  form: LoopForm,
  receiver: CelNode,
  args: readonly CelNode[],
  scope: Scope,
  at: number,
): Expression {
  const [variable, body] = args;
  if (variable?.op !== "id" || body === undefined || args.length !== 2) {
    throw new ExpressionProblem("bad_expression", `write list.${form}(item, …)`, at);
  }
  if (ROOTS.has(variable.args) || scope.includes(variable.args)) {
    const text = `"${variable.args}" already names something; take another name`;
    throw new ExpressionProblem("bad_expression", text, variable.start);
  }
  if (scope.length >= POLICY_LIMITS.loopDepthMax) {
    const text = `loops inside loops: at most ${POLICY_LIMITS.loopDepthMax}`;
    throw new ExpressionProblem("too_costly", text, at);
  }
  return {
    kind: "loop",
    form,
    slot: scope.length,
    range: resolve(receiver, scope),
    body: resolve(body, [...scope, variable.args]),
    at,
  };
}
