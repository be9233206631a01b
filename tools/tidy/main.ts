/** Structure as a test: layers, importers, sizes, patterns, pinned dependencies, acceptance map. */
import { dirname, resolve } from "node:path";
import { checkAcceptance } from "./acceptance.ts";
import { checkImporters, checkLayers, checkPatterns, checkSizes } from "./checks.ts";
import { checkDependencies } from "./dependencies.ts";
import { readSources } from "./sources.ts";

const root = resolve(dirname(process.argv[1] ?? "."), "..");
const update = process.argv.includes("--update");
const sources = readSources(root);
const faults = [
  ...checkLayers(sources),
  ...checkImporters(sources),
  ...checkSizes(sources),
  ...checkPatterns(sources),
  ...checkDependencies(root, update),
  ...checkAcceptance(root, sources),
];
for (const fault of faults) console.log(fault);
console.log(`tidy: ${sources.length} files, ${faults.length} faults`);
process.exit(faults.length === 0 ? 0 : 1);
