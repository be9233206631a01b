import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { kept } from "../../../tests/support/kept.ts";
import { helperBuildCommand } from "../build.ts";

const HELPER = join(import.meta.dirname, "..");
const COMPILE_TIMEOUT_MS = 120_000;

/** The helper for a test, at `path`: a copy of the one that was compiled of these sources by this command. */
export function putHelper(path: string): void {
  const sources = readdirSync(HELPER).filter((name) => /\.[ch]$/.test(name));
  putCompiled(path, {
    name: "capsem-helper",
    command: (out) => helperBuildCommand(HELPER, out),
    sources: sources.sort().map((name) => join(HELPER, name)),
  });
}

export interface Compiled {
  readonly name: string;
  /** The first element is the compiler. */
  command(out: string): readonly string[];
  /** All that the outcome depends on. */
  readonly sources: readonly string[];
}

/** Compiles what was not compiled yet. Throws what the compiler says. */
export function putCompiled(path: string, { name, command, sources }: Compiled): void {
  const hash = createHash("sha256").update(command("").join("\0"));
  for (const source of sources) hash.update("\0").update(readFileSync(source));
  const folder = kept(name, hash.digest("hex").slice(0, 32), (fresh) => {
    const [compiler = "", ...words] = command(join(fresh, name));
    execFileSync(compiler, words, { stdio: "inherit", timeout: COMPILE_TIMEOUT_MS });
  });
  copyFileSync(join(folder, name), path);
}
