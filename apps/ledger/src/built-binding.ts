import { createRequire } from "node:module";
import { join } from "node:path";

/**
 * Stands in the bundle for the loader of SQLite's package, which looks for its binary among those of all machines: the
 * build has put this machine's beside the bundle.
 */
export default function loadBinding(): unknown {
  const path = join(__dirname, "ledger.node");
  return createRequire(path)(path);
}
