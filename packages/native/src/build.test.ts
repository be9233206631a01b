import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { buildNative } from "../build.mjs";
import { rootDir } from "./native-fixture.ts";

test("a build compiles what changed, only that, and leaves nothing half-written", async () => {
  const outDir = mkdtempSync(join(tmpdir(), "native-"));
  expect(await buildNative(rootDir, outDir)).toEqual(["native.node", "capsem-launch", "capsem-gatekeeper"]);
  expect(await buildNative(rootDir, outDir)).toEqual([]);
  rmSync(join(outDir, "capsem-launch"));
  writeFileSync(join(outDir, ".native.node.stamp"), "of other sources");
  expect(await buildNative(rootDir, outDir)).toEqual(["native.node", "capsem-launch"]);
  expect(readdirSync(outDir).sort()).toEqual([
    ".capsem-gatekeeper.stamp",
    ".capsem-launch.stamp",
    ".native.node.stamp",
    "capsem-gatekeeper",
    "capsem-launch",
    "native.node",
  ]);
  rmSync(outDir, { recursive: true });
});

test("a missing compiler is named with what to install", () => {
  const outDir = mkdtempSync(join(tmpdir(), "native-"));
  const program = `
    const [url, ...folders] = process.argv.slice(1);
    import(url).then((build) => build.buildNative(...folders)).catch((thrown) => console.log(thrown.message));`;
  const url = pathToFileURL(join(rootDir, "packages/native/build.mjs")).href;
  const ended = spawnSync(process.execPath, ["-e", program, url, rootDir, outDir], {
    env: { PATH: outDir },
    encoding: "utf8",
    timeout: 20_000,
  });
  expect(ended.stdout).toMatch(/^Cannot build native\.node: g\+\+ is not installed; .*apt-get install g\+\+/);
  expect(existsSync(join(outDir, "native.node"))).toBe(false);
  rmSync(outDir, { recursive: true });
});
