// Builds dist/: one bundle a process, the native addon, the host launcher and the guest helper.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { BUNDLES, bundleOptions, TOOLS } from "./bundles.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const out = join(root, "dist");

async function bundle(entries) {
  await Promise.all(
    entries
      .filter(({ entry }) => existsSync(join(root, entry)))
      .map(async (row) => {
        const options = bundleOptions(root, out, row);
        const { metafile } = await build(options);
        const more = await row.launcher?.(out, options);
        const inputs = { ...metafile.inputs, ...more?.inputs };
        writeFileSync(join(out, `${row.name}.meta.json`), JSON.stringify({ ...metafile, inputs }));
      }),
  );
}

async function native() {
  const { buildNative } = await import("../packages/native/build.mjs");
  await buildNative(root, out);
}

/** Compiled only when its sources or its command changed. */
async function helper() {
  const folder = join(root, "guest-image", "helper");
  const module = await build({
    entryPoints: [join(folder, "build.ts")],
    bundle: true,
    format: "esm",
    write: false,
  });
  const { helperBuildCommand } = await import(
    `data:text/javascript,${encodeURIComponent(module.outputFiles[0].text)}`
  );
  const target = join(out, "capsem-helper");
  const fresh = `${target}.${process.pid}.tmp`;
  const [command, ...args] = helperBuildCommand(folder, fresh);
  const hash = createHash("sha256").update([command, ...args].join("\0").replaceAll(fresh, ""));
  for (const name of readdirSync(folder)
    .filter((name) => /\.[ch]$/.test(name))
    .sort())
    hash.update(readFileSync(join(folder, name)));
  const stamp = hash.digest("hex");
  const stampPath = join(out, ".capsem-helper.stamp");
  if (existsSync(target) && existsSync(stampPath) && readFileSync(stampPath, "utf8") === stamp) return;
  await promisify(execFile)(command, args, { timeout: 120_000 });
  renameSync(fresh, target);
  writeFileSync(stampPath, stamp);
}

mkdirSync(out, { recursive: true });
const only = process.argv[2];
if (only !== undefined) await bundle([...BUNDLES, ...TOOLS].filter(({ name }) => name === only));
else await Promise.all([bundle([...BUNDLES, ...TOOLS]), native(), helper()]);
