// The bench, and what it starts beside the product's own programs.
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const PROGRAMS = {
  bench: "bench/main.ts",
  "bench-tool-host": "bench/tool-host.ts",
  // A service whose VM is a stand-in.
  "bench-tool-owner": "apps/service/src/testing/fake-owner.ts",
};

/** Writes them into `out`. */
export async function buildBench(out) {
  await Promise.all(
    Object.entries(PROGRAMS).map(([name, entry]) =>
      build({
        absWorkingDir: root,
        entryPoints: [entry],
        outfile: join(out, `${name}.cjs`),
        bundle: true,
        platform: "node",
        target: "node20",
        format: "cjs",
        logLevel: "warning",
        // The sources find the project's root by their own folder; a bundle has none.
        define: { "import.meta.dirname": JSON.stringify(join(root, "tests", "support")) },
        external: ["bufferutil", "utf-8-validate"],
      }),
    ),
  );
}
