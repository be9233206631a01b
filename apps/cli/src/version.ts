/** The same as in the root package.json, which a test checks: reading it would cost every start. */
export const VERSION = "0.1.0";
/** How the ledger knows what this program did. */
export const CLIENT_NAME = `capsem/${VERSION}`;
