// This program as its threads run it.
import { resolve } from "node:path";
import { buildSync } from "esbuild";

let built: string | undefined;

export function programText(): string {
  if (built !== undefined) return built;
  const { outputFiles } = buildSync({
    absWorkingDir: resolve(import.meta.dirname, "../../../.."),
    entryPoints: ["apps/builtin/src/main.ts"],
    bundle: true,
    write: false,
    platform: "node",
    format: "cjs",
    target: "node20",
    logLevel: "error",
    supported: { "dynamic-import": false },
  });
  built = `(function (exports, require, module, __filename, __dirname) {\n${outputFiles[0]?.text}\n})\n`;
  return built;
}
