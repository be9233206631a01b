import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { expect, test } from "vitest";
import { startFixtureService } from "./testing/index.ts";

const source = dirname(fileURLToPath(import.meta.url));

test("the README's example does what it says", async () => {
  const readme = readFileSync(join(source, "../README.md"), "utf8");
  expect(readme.split("\n").length).toBeLessThanOrEqual(41);
  const code = /```ts\n([\s\S]*?)```/.exec(readme)?.[1] ?? "";
  const home = mkdtempSync(join(tmpdir(), "sdk-readme-"));
  const outfile = join(home, "example.mjs");
  await build({
    stdin: { contents: code, resolveDir: source, loader: "ts" },
    alias: { "@capsem/sdk/node": join(source, "node.ts") },
    banner: {
      js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);',
    },
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    logLevel: "error",
  });
  const service = await startFixtureService({ home });
  try {
    const env = { PATH: process.env.PATH ?? "", CAPSEM_HOME: home };
    const { stdout } = await promisify(execFile)(process.execPath, [outfile], { env });
    expect(stdout).toBe("stdout hello world\nexit code 3\n");
    expect(service.state.vms.size).toBe(0);
  } finally {
    await service.close();
    rmSync(home, { recursive: true, force: true });
  }
}, 60_000);

test("the root entry runs in a browser: nothing of Node and no WebSocket library is in it", async () => {
  const { metafile } = await build({
    entryPoints: [join(source, "index.ts")],
    bundle: true,
    platform: "browser",
    format: "esm",
    write: false,
    metafile: true,
    logLevel: "silent",
  });
  const inputs = Object.keys(metafile.inputs);
  expect(inputs.filter((path) => /node-|node_modules\/ws\/|\/node\.ts$/.test(path))).toEqual([]);
  expect(inputs.some((path) => path.endsWith("sdk/src/client.ts"))).toBe(true);
});
