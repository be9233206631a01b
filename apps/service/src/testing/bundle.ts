import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildSync } from "esbuild";
import { afterAll } from "vitest";

let folder: string | null = null;
const built = new Map<string, string>();
afterAll(() => {
  if (folder !== null) rmSync(folder, { recursive: true, force: true });
  folder = null;
  built.clear();
});

/** The path of a runnable program made from one of this folder's sources, built once a test file. */
export function bundled(name: "fake-owner" | "fake-service" | "ledger-driver"): string {
  const known = built.get(name);
  if (known !== undefined) return known;
  folder ??= mkdtempSync(join(tmpdir(), "capsem-bundle-"));
  const outfile = join(folder, `${name}.cjs`);
  buildSync({
    entryPoints: [join(__dirname, `${name}.ts`)],
    outfile,
    bundle: true,
    platform: "node",
    format: "cjs",
    target: "node20",
    logLevel: "error",
  });
  built.set(name, outfile);
  return outfile;
}
