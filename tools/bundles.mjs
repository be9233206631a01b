import { readFileSync } from "node:fs";
import { join } from "node:path";
import { callsApart, writeLauncher } from "./mcp-launcher.mjs";

// The processes of the product: one bundled file each, because start-up counts. One entry a line.
export const BUNDLES = [
  { name: "cli", entry: "apps/cli/src/main.ts" },
  { name: "service", entry: "apps/service/src/main.ts" },
  { name: "owner", entry: "apps/owner/src/main.ts" },
  { name: "gateway", entry: "apps/gateway/src/main.ts" },
  { name: "image", entry: "apps/image/src/main.ts" },
  { name: "guest", entry: "apps/guest/src/main.ts" },
  {
    name: "mcp",
    entry: "apps/mcp/src/main.ts",
    launcher: writeLauncher,
    plugins: [callsApart],
    minify: true,
    // It runs from a code cache, in a script that may not import.
    supported: { "dynamic-import": false },
    // The SDK's platform module brings a JSON schema validator that this server never uses.
    alias: { "@modelcontextprotocol/server/_shims": "./apps/mcp/src/sdk-shims.ts" },
  },
];

export const TOOLS = [{ name: "tidy", entry: "tools/tidy/main.ts" }];

/** What esbuild is asked for a row; a row with a launcher has its bundle beside it. */
export function bundleOptions(root, out, { name, entry, launcher, ...options }) {
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return {
    absWorkingDir: root,
    entryPoints: [entry],
    outfile: join(out, launcher === undefined ? `${name}.cjs` : `${name}-server.cjs`),
    bundle: true,
    platform: "node",
    target: "node20",
    format: "cjs",
    legalComments: "none",
    metafile: true,
    logLevel: "warning",
    external: ["bufferutil", "utf-8-validate"],
    define: { "process.env.CAPSEM_VERSION": JSON.stringify(version) },
    ...options,
  };
}
