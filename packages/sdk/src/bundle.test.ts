import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { expect, test } from "vitest";
import { startWays } from "./testing/ways.ts";

/** What a page loads, minified, from source. Two thirds are the schema library, which the published build leaves out. */
const BYTES_MAX = 176_000;
const GZIP_BYTES_MAX = 52_500;

const source = import.meta.dirname;

function bundleForBrowser(entry: string, format: "esm" | "iife" = "esm") {
  return build({
    entryPoints: [join(source, entry)],
    bundle: true,
    minify: true,
    platform: "browser",
    format,
    globalName: "bundle",
    write: false,
    metafile: true,
    logLevel: "silent",
  });
}

test("the root entry has nothing of Node and no WebSocket library in it, and stays small", async () => {
  // Node's own modules do not resolve for a browser: a use of one would fail the build.
  const { metafile, outputFiles } = await bundleForBrowser("index.ts");
  const inputs = Object.keys(metafile.inputs);
  expect(inputs.filter((path) => /node-|node_modules\/ws\/|\/node\.ts$/.test(path))).toEqual([]);
  expect(inputs.some((path) => path.endsWith("sdk/src/client.ts"))).toBe(true);
  const [file] = outputFiles;
  expect(
    /(?<![.\w$])((Buffer|process|global)\.|(setImmediate|require)\()/.exec(file?.text ?? "Buffer."),
  ).toBeNull();
  expect(file?.contents.length).toBeLessThan(BYTES_MAX);
  expect(gzipSync(file?.contents ?? "").length).toBeLessThan(GZIP_BYTES_MAX);
});

test("a page works over the gateway with fetch and the runtime's own WebSocket, where nothing of Node is", async () => {
  const rig = await startWays();
  try {
    const { outputFiles } = await bundleForBrowser("testing/page-main.ts", "iife");
    // Node's fetch needs Node itself, so what a page does not have is hidden from the page's script alone.
    const hidden = JSON.stringify([
      "Buffer",
      "process",
      "global",
      "setImmediate",
      "require",
      "module",
      "exports",
    ]);
    const main = `
      const code = ${JSON.stringify(`${outputFiles[0]?.text}\nreturn bundle;`)};
      const { page } = new Function(...${hidden}, code)();
      page(...process.argv.slice(2)).then((seen) => console.log(JSON.stringify(seen)));`;
    writeFileSync(join(rig.home, "main.mjs"), main);
    // Before Node 22 it has a browser's WebSocket only when asked.
    const argv = [
      "--experimental-websocket",
      "--no-warnings",
      join(rig.home, "main.mjs"),
      rig.url,
      rig.token(),
    ];
    const { stdout } = await promisify(execFile)(process.execPath, argv);
    expect(JSON.parse(stdout)).toEqual(["hello", "vm", "world!\n", 3, 5_000_000, "ENOENT", "vm_not_found"]);
  } finally {
    await rig.close();
  }
});
