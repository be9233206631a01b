import type { FaultCode } from "../fault.ts";

/** Why an expression does not compile. Thrown inside `cel/` only; `compileCondition` returns it as a value. */
export class ExpressionProblem extends Error {
  override name = "ExpressionProblem";
  readonly code: FaultCode;
  /** In the expression, in UTF-16 units. */
  readonly offset: number;

  constructor(code: FaultCode, message: string, offset: number) {
    super(message);
    this.code = code;
    this.offset = offset;
  }
}
