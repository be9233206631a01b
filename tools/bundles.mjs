import { copyFileSync, readFileSync, renameSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { build } from "esbuild";
import { writeLauncher, writeProgram } from "./code-cache.mjs";
import { callsApart, withoutSockets } from "./mcp-parts.mjs";
import { plainRoutes } from "./plain-routes.mjs";
import {
  warmAggregator,
  warmBuiltin,
  warmCli,
  warmEgress,
  warmGateway,
  warmImage,
  warmLedger,
  warmMcp,
  warmOwner,
  warmProxy,
  warmService,
} from "./warm-runs.mjs";

/**
 * The processes of the product, one entry a line: a bundled file each, because start-up counts. One with a warm run is
 * a program with a code cache, behind a launcher. The guest is one file alone: it is copied into a VM, with a Node of
 * its own.
 */
export const BUNDLES = [
  { name: "cli", entry: "apps/cli/src/main.ts", warm: warmCli, plugins: [plainRoutes] },
  { name: "service", entry: "apps/service/src/main.ts", warm: warmService },
  { name: "owner", entry: "apps/owner/src/main.ts", warm: warmOwner },
  {
    name: "ledger",
    entry: "apps/ledger/src/main.ts",
    warm: warmLedger,
    alias: {
      // The package's own loader looks through the binaries of all machines.
      "node-gyp-build": "./apps/ledger/src/built-binding.ts",
      // Its other form asks for its own address, which a bundle does not have.
      "@photostructure/sqlite": "./node_modules/@photostructure/sqlite/dist/index.cjs",
    },
    binary: "@photostructure/sqlite",
  },
  { name: "proxy", entry: "apps/proxy/src/main.ts", warm: warmProxy },
  { name: "aggregator", entry: "apps/aggregator/src/main.ts", warm: warmAggregator },
  { name: "egress", entry: "apps/egress/src/main.ts", warm: warmEgress },
  {
    name: "builtin",
    entry: "apps/builtin/src/main.ts",
    warm: warmBuiltin,
    // The form for browsers: it brings no parser of HTML, for it is given trees.
    alias: { turndown: "./node_modules/turndown/lib/turndown.browser.es.js" },
  },
  { name: "gateway", entry: "apps/gateway/src/main.ts", warm: warmGateway },
  { name: "image", entry: "apps/image/src/main.ts", warm: warmImage },
  { name: "guest", entry: "apps/guest/src/main.ts" },
  {
    name: "mcp",
    main: "mcp-server",
    entry: "apps/mcp/src/main.ts",
    warm: warmMcp,
    plugins: [callsApart],
    minify: true,
    // The SDK's platform module brings a JSON schema validator that this server never uses.
    alias: { "@modelcontextprotocol/server/_shims": "./apps/mcp/src/sdk-shims.ts" },
    // Loaded by the first one when a client asks for a tool.
    parts: [{ name: "mcp-calls", entry: "apps/mcp/src/calls.ts", plugins: [withoutSockets] }],
  },
];

export const TOOLS = [{ name: "tidy", entry: "tools/tidy/main.ts" }];

/** Writes a row's files, all but its code cache, into `out`; answers with the metafile of all of them. */
export async function writeBundle(root, out, row) {
  const { name, entry, warm, parts = [], main = `${name}-main`, binary, ...more } = row;
  const isProgram = warm !== undefined;
  const outputs = [{ name: isProgram ? main : name, entry }, ...parts];
  const metafiles = await Promise.all(
    outputs.map(async ({ name: output, entry: from, ...own }) => {
      const options = { ...optionsOf(root, join(out, `${output}.cjs`), from), ...more, ...own };
      if (!isProgram) return (await build(options)).metafile;
      // A program is a script, which may not import.
      const supported = { "dynamic-import": false };
      const { metafile, outputFiles } = await build({ ...options, supported, write: false });
      writeProgram(out, output, outputFiles[0].text);
      return metafile;
    }),
  );
  if (isProgram) writeLauncher(out, name, main);
  if (binary !== undefined) copyBinary(root, binary, join(out, `${name}.node`));
  return { ...metafiles[0], inputs: Object.assign({}, ...metafiles.map(({ inputs }) => inputs)) };
}

/** This machine's of the binaries that a package brings; a process that has the old one mapped keeps it. */
function copyBinary(root, name, path) {
  const require = createRequire(join(root, "package.json"));
  const found = require("node-gyp-build").path(join(root, "node_modules", name));
  const fresh = `${path}.${process.pid}.tmp`;
  copyFileSync(found, fresh);
  renameSync(fresh, path);
}

function optionsOf(root, outfile, entry) {
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return {
    absWorkingDir: root,
    entryPoints: [entry],
    outfile,
    bundle: true,
    platform: "node",
    target: "node20",
    format: "cjs",
    legalComments: "none",
    metafile: true,
    logLevel: "warning",
    external: ["bufferutil", "utf-8-validate"],
    define: { "process.env.CAPSEM_VERSION": JSON.stringify(version) },
  };
}
