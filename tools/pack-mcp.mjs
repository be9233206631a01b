// Makes the npm package of capsem-mcp in dist/pack/mcp, or in the folder that is named: one bundled program, no
// dependencies, no install scripts. `npm pack` there makes the file to publish.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { BUNDLES, writeBundle } from "./bundles.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const out = resolve(process.argv[2] ?? join(root, "dist", "pack", "mcp"));
const row = BUNDLES.find(({ name }) => name === "mcp");
const { version, license, engines } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const { inputs } = await writeBundle(root, out, row);
await row.warm(out);
const manifest = {
  name: "@capsem/mcp",
  version,
  description: "MCP server for Capsem: real Linux VMs for AI agents",
  license,
  engines,
  bin: { "capsem-mcp": "mcp.cjs" },
  files: ["*.cjs", "*.cache", "THIRD-PARTY.txt"],
};
writeFileSync(join(out, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
writeFileSync(join(out, "README.md"), readFileSync(join(root, "apps", "mcp", "README.md")));
writeFileSync(join(out, "THIRD-PARTY.txt"), thirdParties(Object.keys(inputs)));
console.log(out);

/** The licences of what is bundled, as they ask for. */
function thirdParties(inputs) {
  const found = inputs.flatMap((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []);
  return [...new Set(found)]
    .sort()
    .map((name) => {
      const folder = join(root, "node_modules", name);
      const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
      if (file === undefined) throw new Error(`Cannot pack ${name}: it has no licence file`);
      return `${name}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
    })
    .join(`\n${"-".repeat(80)}\n\n`);
}
