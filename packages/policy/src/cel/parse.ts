import { type ASTNode, Environment, type ObjectSchema, ParseError } from "@marcbachmann/cel-js";
import { CEL_TYPES, FIELDS, type FieldRow } from "../event/field-table.ts";
import { POLICY_LIMITS } from "../limits.ts";
import { adviceAt, adviceOnType } from "./advice.ts";
import { FUNCTIONS } from "./function-table.ts";
import { ExpressionProblem } from "./problem.ts";

/** The library's tree. Only `parse.ts` and `resolve.ts` know its shape. */
export type CelNode = ASTNode;

/** The field table as the library wants it: a map of maps with types at the ends. */
interface Schema extends ObjectSchema {
  [name: string]: string | Schema;
}

function schemaOf(rows: Readonly<Record<string, FieldRow>>): Schema {
  const schema: Schema = {};
  for (const [path, row] of Object.entries(rows)) {
    const parts = path.split(".");
    const last = parts.pop() ?? "";
    let at = schema;
    for (const part of parts) {
      const below = at[part];
      if (typeof below === "object") at = below;
      else {
        const made: Schema = {};
        at[part] = made;
        at = made;
      }
    }
    at[last] = CEL_TYPES[row.kind];
  }
  return schema;
}

/** Knows every field and our functions; it checks types and never evaluates anything. */
function createChecker(): Environment {
  const checker = new Environment({
    unlistedVariablesAreDyn: false,
    homogeneousAggregateLiterals: true,
    limits: {
      maxAstNodes: POLICY_LIMITS.expressionNodesMax,
      maxDepth: POLICY_LIMITS.expressionDepthMax,
      maxListElements: POLICY_LIMITS.constantsMax,
      maxMapEntries: 16,
      maxCallArguments: 4,
    },
  });
  for (const [root, schema] of Object.entries(schemaOf(FIELDS))) {
    if (typeof schema === "string") continue;
    if (root === "label") {
      checker.registerType("Label", { fields: schema as Record<string, string> });
      checker.registerVariable("label", "Label");
    } else checker.registerVariable({ name: root, schema });
  }
  const ours = ["cidr", "host_in", "tainted"];
  for (const name of ours) {
    for (const signature of FUNCTIONS.get(name)?.signatures ?? []) {
      checker.registerFunction(signature, () => false, { async: false });
    }
  }
  return checker;
}

const checker = createChecker();

/** Parses within the bounds. Throws an ExpressionProblem. */
export function parseExpression(source: string): { readonly tree: CelNode; readonly check: () => void } {
  try {
    const parsed = checker.parse(source);
    return {
      tree: parsed.ast,
      check() {
        const result = parsed.check();
        if (!result.valid) throw problemOf(result.error, "bad_type", source);
        if (result.type !== "bool") {
          throw new ExpressionProblem("bad_type", `it gives ${result.type}, not true or false`, 0);
        }
      },
    };
  } catch (error) {
    throw problemOf(error, "bad_expression", source);
  }
}

interface LibraryError {
  readonly summary?: unknown;
  readonly range?: { readonly start: number } | undefined;
}

function problemOf(error: unknown, code: "bad_type" | "bad_expression", source: string): ExpressionProblem {
  if (error instanceof ExpressionProblem) return error;
  if (error instanceof RangeError) return new ExpressionProblem("too_large", "it is nested too deeply", 0);
  const { summary, range } = error as LibraryError;
  const message = typeof summary === "string" ? summary : error instanceof Error ? error.message : "invalid";
  const isOver = error instanceof ParseError && /exceed|limit|too (many|deep)/i.test(message);
  const offset = range?.start ?? 0;
  if (isOver) return new ExpressionProblem("too_large", plainWords(message), offset);
  const plain = plainWords(message);
  const words = code === "bad_type" ? plain + adviceOnType(plain) : (adviceAt(source, offset) ?? plain);
  return new ExpressionProblem(code, words, offset);
}

/** Without the dollar sign of the library's names for our records, and fit for a terminal. */
function plainWords(message: string): string {
  return message
    .slice(0, 300)
    .replace(/\$(?=[a-z])/g, "")
    .replace(/[\p{Cc}\p{Surrogate}]/gu, "?");
}
