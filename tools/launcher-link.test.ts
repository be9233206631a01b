import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";

test("./capsem runs from anywhere through a link, and through a link to it", () => {
  const folder = mkdtempSync(join(tmpdir(), "capsem-link-"));
  try {
    const product = join(folder, "product");
    const cache = join(folder, "cache");
    for (const name of ["packages", "apps", "guest-image", "tools", "dist"])
      mkdirSync(join(product, name), { recursive: true });
    mkdirSync(join(cache, "images", "by-recipe"), { recursive: true });
    copyFileSync(resolve(import.meta.dirname, "../capsem"), join(product, "capsem"));
    writeFileSync(
      join(product, "dist", "cli.cjs"),
      "console.log(__dirname, process.argv.slice(2).join(' '))",
    );
    writeFileSync(join(product, "package-lock.json"), "{}");
    // As the first run leaves it: newer than everything that was built.
    const { dev, ino, size, mtimeMs } = statSync(process.execPath);
    const ready = join(product, "dist", ".ready");
    writeFileSync(ready, `${process.version}\n${dev} ${ino} ${size} ${Math.floor(mtimeMs / 1000)}\n`);
    const later = Date.now() / 1000 + 60;
    utimesSync(ready, later, later);
    const bin = join(folder, "bin");
    mkdirSync(bin);
    symlinkSync(join(product, "capsem"), join(bin, "capsem"));
    symlinkSync("capsem", join(bin, "again"));
    const env = { PATH: `${bin}:${process.env.PATH ?? ""}`, CAPSEM_CACHE: cache, HOME: folder };
    for (const command of ["capsem", "again"]) {
      const said = execFileSync(command, ["list", "--json"], { cwd: "/", env, encoding: "utf8" });
      expect(said).toBe(`${join(product, "dist")} list --json\n`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
