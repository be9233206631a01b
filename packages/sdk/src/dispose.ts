/** The well-known symbol where the runtime has it; elsewhere what compilers put in its place for `await using`. */
export const asyncDispose: typeof Symbol.asyncDispose = (Symbol.asyncDispose ??
  Symbol.for("Symbol.asyncDispose")) as typeof Symbol.asyncDispose;
