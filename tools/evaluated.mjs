import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Script } from "node:vm";
import { build } from "esbuild";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");

/** What a source file exports, for a build that puts a value in the place of the code that makes it. */
export async function evaluated(path) {
  const options = { entryPoints: [path], bundle: true, platform: "node", format: "cjs", write: false };
  const { outputFiles } = await build({ ...options, absWorkingDir: root, logLevel: "warning" });
  const module = { exports: {} };
  const script = new Script(`(function (exports, require, module) {${outputFiles[0].text}\n})`);
  script.runInThisContext()(module.exports, createRequire(path), module);
  return module.exports;
}
