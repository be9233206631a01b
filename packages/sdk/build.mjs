// Builds the package as it is published, in dist/pack/sdk or in the folder that is named, and beside it the file that
// `npm install` takes anywhere; prints that file.
import { execFile } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
const ENTRIES = { index: "src/index.ts", node: "src/node.ts" };
/** What a client needs of a route; its schemas, two thirds of the code, check nothing on this side. */
const ROUTE_FIELDS = ["method", "path", "mutates", "request", "response"];

export async function buildSdk(out) {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  await Promise.all([bundle(out, await routeRows()), declarations(out)]);
  const { version } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
  const versionOf = (name) => JSON.parse(readFileSync(join(root, "package.json"), "utf8")).dependencies[name];
  const entry = (name) => ({ types: `./types/sdk/src/${name}.d.ts`, default: `./${name}.js` });
  const manifest = {
    name: "@capsem/sdk",
    version,
    description: "Client of Capsem: real Linux VMs for AI agents",
    license: "Apache-2.0",
    type: "module",
    sideEffects: false,
    engines: { node: ">=20.20.0" },
    exports: { ".": entry("index"), "./node": entry("node"), "./package.json": "./package.json" },
    // ws is loaded by the Node entry's first stream; zod by nothing, the types name it.
    dependencies: { ws: `^${versionOf("ws")}`, zod: `^${versionOf("zod")}` },
  };
  writeFileSync(join(out, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
  copyFileSync(join(here, "README.md"), join(out, "README.md"));
}

async function packSdk(out) {
  await buildSdk(out);
  const folder = dirname(out);
  // No script of the package runs, and nothing is asked of a registry.
  const args = ["pack", "--silent", "--ignore-scripts", "--offline", "--pack-destination", folder, out];
  const { stdout } = await promisify(execFile)("npm", args);
  return join(folder, stdout.trim());
}

async function routeRows() {
  const folder = mkdtempSync(join(tmpdir(), "capsem-sdk-"));
  try {
    const outfile = join(folder, "routes.mjs");
    await build({
      stdin: { contents: 'export { ROUTES } from "@capsem/api";', resolveDir: here },
      outfile,
      bundle: true,
      format: "esm",
      logLevel: "error",
    });
    const { ROUTES } = await import(pathToFileURL(outfile).href);
    const pick = (route) => Object.fromEntries(ROUTE_FIELDS.map((field) => [field, route[field]]));
    return Object.fromEntries(Object.entries(ROUTES).map(([name, route]) => [name, pick(route)]));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function bundle(out, rows) {
  const entryPoints = Object.fromEntries(
    Object.entries(ENTRIES).map(([name, path]) => [name, join(here, path)]),
  );
  await build({
    absWorkingDir: root,
    entryPoints,
    outdir: out,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "neutral",
    target: "es2022",
    external: ["node:*", "ws"],
    chunkNames: "chunk-[hash]",
    logLevel: "error",
    plugins: [
      {
        name: "route-rows",
        setup({ onLoad }) {
          const contents = `export const ROUTES = ${JSON.stringify(rows)};`;
          onLoad({ filter: /packages\/api\/src\/route-table\.ts$/ }, () => ({ contents }));
        },
      },
    ],
  });
}

async function declarations(out) {
  const types = join(out, "types");
  const config = join(out, "tsconfig.json");
  writeFileSync(
    config,
    JSON.stringify({
      extends: join(root, "tsconfig.json"),
      compilerOptions: {
        noEmit: false,
        declaration: true,
        emitDeclarationOnly: true,
        rootDir: join(root, "packages"),
        outDir: types,
        // Not through node_modules, where nothing is compiled.
        paths: {
          "@capsem/*": [join(root, "packages/*/src/index.ts")],
          "@capsem/api/plain": [join(root, "packages/api/src/plain.ts")],
        },
        typeRoots: [join(root, "node_modules/@types")],
      },
      include: [],
      files: Object.values(ENTRIES).map((path) => join(here, path)),
    }),
  );
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  await promisify(execFile)(process.execPath, [tsc, "-p", config]);
  rmSync(config);
  for (const path of readdirSync(types, { recursive: true })) {
    const file = join(types, path);
    if (!statSync(file).isFile()) continue;
    // Names of workspace packages and of sources mean nothing to a stranger's compiler.
    const text = readFileSync(file, "utf8")
      .replaceAll(/"@capsem\/(\w+)(?:\/(\w+))?"/g, (_, name, entry = "index") =>
        JSON.stringify(nameFrom(file, types, name, entry)),
      )
      .replaceAll(/(from |import\()"(\.[^"]+)\.ts"/g, '$1"$2.js"');
    writeFileSync(file, text);
  }
}

function nameFrom(file, types, name, entry) {
  const path = relative(dirname(file), join(types, name, `src/${entry}.js`));
  return path.startsWith(".") ? path : `./${path}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  console.log(await packSdk(resolve(process.argv[2] ?? join(root, "dist", "pack", "sdk"))));
