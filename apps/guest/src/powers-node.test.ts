import { execFileSync } from "node:child_process";
import { buildSync } from "esbuild";
import { expect, test } from "vitest";

/** Enough for Node itself to start. */
const DESCRIPTORS_MAX = 64;

/** Runs lines of TypeScript beside this file as a process of their own, with few descriptors; what it prints. */
function runWithFewDescriptors(contents: string): string {
  const [file] = buildSync({
    stdin: { contents, resolveDir: import.meta.dirname, loader: "ts" },
    bundle: true,
    platform: "node",
    format: "cjs",
    write: false,
  }).outputFiles;
  const words = [`--nofile=${DESCRIPTORS_MAX}`, process.execPath, "-e", file?.text ?? ""];
  return execFileSync("prlimit", words, { encoding: "utf8", timeout: 15_000 });
}

test("an agent without a free descriptor is refused a helper, and goes on", () => {
  const said = runWithFewDescriptors(`
    import { closeSync, openSync } from "node:fs";
    import { parseArguments } from "./arguments.ts";
    import { nodePowers } from "./powers-node.ts";

    const powers = nodePowers(parseArguments(["--helper", "/bin/true"]));
    const starts = [
      () => powers.startZygote(),
      () => powers.startRepair(),
      () => powers.startTraffic(),
      () => powers.startRelay("/dev/null"),
      () => powers.startInit("/mnt", ""),
    ];
    const codeOf = (act: () => unknown): string => {
      try {
        act();
        return "done";
      } catch (error) {
        return String((error as { code?: unknown }).code);
      }
    };
    const ends: string[] = [];
    const held: number[] = [];
    let code = "done";
    while (code === "done") code = codeOf(() => held.push(openSync("/dev/null", "r")));
    ends.push(code, ...starts.map(codeOf));
    // Node tells some failures a turn later: nobody may be missing to hear them.
    setImmediate(() => {
      for (const fd of held) closeSync(fd);
      const after = powers.startRelay("/dev/null");
      after.once("exit", (exitCode) => process.stdout.write([...ends, exitCode].join(" ")));
    });
  `);
  expect(said).toBe("EMFILE EMFILE EMFILE EMFILE EMFILE EMFILE 0");
});
