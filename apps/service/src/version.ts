/** The same as in the root package.json, as in the CLI: reading it would cost every start. */
export const VERSION = "0.1.0";
