import { spawnSync } from "node:child_process";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { expect, it } from "vitest";

/** Runs lines of TypeScript beside this file, as a process of their own. */
function run(contents: string) {
  const resolveDir = dirname(fileURLToPath(import.meta.url));
  const [file] = buildSync({
    stdin: { contents, resolveDir, loader: "ts" },
    bundle: true,
    platform: "node",
    format: "cjs",
    write: false,
  }).outputFiles;
  return spawnSync(process.execPath, ["-e", file?.text ?? ""], { encoding: "utf8" });
}

const STRAY = 'console.log("stray 1"); console.info("stray 2"); process.stdout.write("stray 3\\n");';

it("a stray write to stdout lands on stderr once the protocol has taken stdout", () => {
  const loose = run(`${STRAY} process.stdout.write("{}\\n");`);
  expect(loose.stdout).toContain("stray 1");
  const taken = run(`
    import { nodePowers } from "./powers-node.ts";
    const write = nodePowers().takeStdout();
    ${STRAY}
    void write("{}\\n");
  `);
  expect(taken.stdout).toBe("{}\n");
  expect(taken.stderr).toBe("stray 1\nstray 2\nstray 3\n");
});
