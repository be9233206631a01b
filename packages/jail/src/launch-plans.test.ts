import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { builtPath, launchWords, native } from "@capsem/native";
import { expect, onTestFinished, test } from "vitest";
import { NODE_ENVIRONMENT, nodeReadPaths } from "./launch-plans.ts";

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable) console.log("skipped: Node under the launcher, because this kernel has no Landlock");
const confined = test.skipIf(!usable);

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "jail-plan-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function run(nodeBinary: string, program: string, drop?: (path: string) => boolean) {
  const paths = nodeReadPaths(nodeBinary, [program]);
  const grants = drop === undefined ? paths : { ...paths, read: paths.read.filter((path) => !drop(path)) };
  const words = launchWords(
    {
      ...{ parentPid: process.pid, command: nodeBinary, args: [program], grants, env: NODE_ENVIRONMENT },
      ...(process.getuid?.() === 0 ? { asRoot: true } : {}),
      netNamespace: "off",
    },
    builtPath("capsem-launch"),
  );
  const { status, stdout, stderr } = spawnSync(words.file, words.args, { encoding: "utf8", timeout: 20_000 });
  return { status, stdout, stderr };
}

confined("Node runs on its list of paths alone, from any prefix", () => {
  const folder = newFolder();
  const program = join(folder, "program.cjs");
  writeFileSync(
    program,
    "console.log(require('node:crypto').createHash('sha256').update('x').digest('hex').length)",
  );
  expect(run(process.execPath, program)).toEqual({ status: 0, stdout: "64\n", stderr: "" });
  mkdirSync(join(folder, "bin"));
  const copy = join(folder, "bin", "node");
  copyFileSync(process.execPath, copy);
  expect(run(copy, program)).toEqual({ status: 0, stdout: "64\n", stderr: "" });
});

confined(
  "nothing in the list is a luxury: without its program, or without libraries, Node does not start",
  () => {
    const program = join(newFolder(), "program.cjs");
    writeFileSync(program, "console.log(1)");
    expect(run(process.execPath, program, (path) => path === program).status).not.toBe(0);
    expect(run(process.execPath, program, (path) => path.includes("/lib")).status).not.toBe(0);
  },
);

confined("the program reads nothing beside its own files", () => {
  const folder = newFolder();
  const program = join(folder, "program.cjs");
  writeFileSync(join(folder, "secret"), "s");
  const text = `try { require("node:fs").readFileSync(${JSON.stringify(join(folder, "secret"))}); console.log("read") }
    catch (thrown) { console.log(thrown.code) }`;
  writeFileSync(program, text);
  expect(spawnSync(process.execPath, [program], { encoding: "utf8" }).stdout).toBe("read\n");
  expect(run(process.execPath, program).stdout).toBe("EACCES\n");
});
