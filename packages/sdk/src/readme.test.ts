import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, startWays } from "./testing/ways.ts";

const readme = readFileSync(join(import.meta.dirname, "../README.md"), "utf8");
const page = readFileSync(join(import.meta.dirname, "../../../docs/sdk.md"), "utf8");
const EXAMPLE = /```[jt]s\n([\s\S]*?)```\n```text\n([\s\S]*?)```/g;
const examples = [...readme.matchAll(EXAMPLE), ...page.matchAll(EXAMPLE)];

let rig: Rig;
beforeAll(async () => {
  rig = await startWays();
});
afterAll(() => rig.close());

test("the README is short, and each example says what it prints", () => {
  expect(readme.split("\n").length).toBeLessThanOrEqual(140);
  expect(examples.length).toBe(`${readme}${page}`.match(/```[jt]s/g)?.length);
  expect(examples.length).toBeGreaterThan(3);
});

test.each(examples.map(([, code = "", text = ""], at) => ({ at, code, text })))(
  "example $at of the README and of docs/sdk.md prints what it says",
  async ({ at, code, text }) => {
    const outfile = join(rig.home, `example-${at}.mjs`);
    await build({
      stdin: { contents: code, resolveDir: import.meta.dirname, loader: "ts" },
      alias: { "@capsem/sdk/node": join(import.meta.dirname, "node.ts") },
      banner: {
        js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);',
      },
      outfile,
      bundle: true,
      platform: "node",
      target: "node20",
      format: "esm",
      logLevel: "error",
    });
    const env = { PATH: process.env.PATH ?? "", GATEWAY_URL: rig.url, TOKEN_FILE: rig.tokenFile };
    const { stdout } = await promisify(execFile)(process.execPath, [outfile], { env });
    expect(stdout).toBe(text);
  },
  60_000,
);
