// Builds dist/: one bundle a process and its code cache, the native addon, the host launcher and the guest helper.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { BUNDLES, TOOLS, writeBundle } from "./bundles.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const out = join(root, "dist");

async function bundle(rows) {
  await Promise.all(
    rows.map(async (row) => {
      const metafile = await writeBundle(root, out, row);
      writeFileSync(join(out, `${row.name}.meta.json`), JSON.stringify(metafile));
    }),
  );
}

/** One after the other, once all is built: the programs use each other and the addon. */
async function cache(rows) {
  for (const { warm } of rows) await warm?.(out);
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
const rows = [...BUNDLES, ...TOOLS].filter(({ name }) => only === undefined || name === only);
await Promise.all([bundle(rows), ...(only === undefined ? [native(), helper()] : [])]);
await cache(rows);
