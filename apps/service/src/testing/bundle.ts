import { createHash } from "node:crypto";
import { symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { builtPath } from "@capsem/native";
import { buildSync } from "esbuild";
import { kept } from "../../../../tests/support/kept.ts";

const built = new Map<string, string>();

/** The path of a runnable program made from one of this folder's sources, with what is built for it beside it. */
export function bundled(name: "fake-owner" | "fake-service" | "fake-worker" | "ledger-driver"): string {
  const known = built.get(name);
  if (known !== undefined) return known;
  const { outputFiles } = buildSync({
    entryPoints: [join(import.meta.dirname, `${name}.ts`)],
    bundle: true,
    platform: "node",
    format: "cjs",
    target: "node20",
    logLevel: "error",
    write: false,
  });
  const text = outputFiles[0]?.contents ?? new Uint8Array();
  const hash = createHash("sha256").update(text).digest("hex").slice(0, 32);
  const folder = kept(name, hash, (fresh) => {
    writeFileSync(join(fresh, `${name}.cjs`), text);
    for (const each of ["capsem-launch", "native.node"]) symlinkSync(builtPath(each), join(fresh, each));
  });
  const path = join(folder, `${name}.cjs`);
  built.set(name, path);
  return path;
}
