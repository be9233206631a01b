/** The same as in the package's own package.json, which a test checks: a browser reads no file. */
export const VERSION = "0.1.0";
