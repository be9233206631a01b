// Builds dist/: one bundle a process, the native addon, the host launcher and the guest helper.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { BUNDLES, TOOLS } from "./bundles.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const out = join(root, "dist");

async function bundle(entries) {
  const version = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).version;
  await Promise.all(
    entries
      .filter(({ entry }) => existsSync(join(root, entry)))
      .map(({ name, entry }) =>
        build({
          absWorkingDir: root,
          entryPoints: [entry],
          outfile: join(out, `${name}.cjs`),
          bundle: true,
          platform: "node",
          target: "node20",
          format: "cjs",
          legalComments: "none",
          metafile: true,
          logLevel: "warning",
          external: ["bufferutil", "utf-8-validate"],
          define: { "process.env.CAPSEM_VERSION": JSON.stringify(version) },
        }).then(({ metafile }) => writeFileSync(join(out, `${name}.meta.json`), JSON.stringify(metafile))),
      ),
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
if (only === "tidy") await bundle(TOOLS);
else await Promise.all([bundle([...BUNDLES, ...TOOLS]), native(), helper()]);
