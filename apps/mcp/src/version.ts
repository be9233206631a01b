/** The same as in the root package.json, which a test checks: reading it would cost every start. */
export const VERSION = "0.1.0";
