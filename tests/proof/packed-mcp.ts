import { execFile } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const root = resolve(import.meta.dirname, "..", "..");
const run = promisify(execFile);
const STEP_TIMEOUT_MS = 60_000;

/** Packs capsem-mcp as it would be published and installs that file, offline and without scripts. Its program. */
export async function installPackedMcp(folder: string): Promise<string> {
  const [pack, app] = [join(folder, "pack"), join(folder, "app")];
  mkdirSync(app);
  const options = { cwd: folder, timeout: STEP_TIMEOUT_MS };
  await run(process.execPath, [join(root, "tools", "pack-mcp.mjs"), pack], options);
  await run("npm", ["pack", "--pack-destination", folder, pack], options);
  const file = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  if (file === undefined) throw new Error(`Cannot install capsem-mcp: npm pack left no file in ${folder}`);
  const flags = ["--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"];
  await run("npm", ["install", ...flags, "--prefix", app, join(folder, file)], options);
  return join(app, "node_modules", ".bin", "capsem-mcp");
}
