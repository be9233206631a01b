import { mkdir, mkdtemp, readdir, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  buildDirOf,
  findByRecipe,
  type ImageRef,
  imagesDir,
  openImage,
  publishImage,
  rememberRecipe,
  removeStaleBuilds,
  verifyImage,
} from "./image-store.ts";
import { IMAGE_FILES, type ImageManifest, imageFilesOf } from "./manifest.ts";

const RECIPE = "c".repeat(64);

async function withCache(use: (cacheDir: string) => Promise<void>): Promise<void> {
  const cacheDir = await mkdtemp(join(tmpdir(), "capsem-store-"));
  try {
    await mkdir(join(imagesDir(cacheDir), "by-recipe"), { recursive: true });
    await use(cacheDir);
  } finally {
    await rm(cacheDir, { recursive: true, force: true });
  }
}

async function publishSmall(cacheDir: string, name = "1"): Promise<ImageRef> {
  const buildDir = buildDirOf(cacheDir, name);
  await mkdir(buildDir);
  for (const file of IMAGE_FILES) await writeFile(join(buildDir, file), `content of ${file}`);
  const manifest: ImageManifest = {
    format: 1,
    recipe: RECIPE,
    suite: "stable",
    arch: "amd64",
    kernelVersion: "6.1",
    nodeVersion: "20.20.2",
    npmVersion: "10.9.9",
    packages: [],
    files: await imageFilesOf(buildDir),
  };
  return publishImage(cacheDir, buildDir, manifest);
}

test("a published image opens, verifies, and is found by its recipe", () =>
  withCache(async (cacheDir) => {
    const ref = await publishSmall(cacheDir);
    await rememberRecipe(cacheDir, RECIPE, ref.digest);
    expect(await openImage(cacheDir, ref.digest)).toMatchObject(ref);
    await verifyImage(ref);
    expect(await findByRecipe(cacheDir, RECIPE)).toEqual(ref);
    expect(await findByRecipe(cacheDir, "d".repeat(64))).toBeUndefined();
  }));

test("publishing the same content again keeps the first and leaves no build folder", () =>
  withCache(async (cacheDir) => {
    const first = await publishSmall(cacheDir, "1");
    expect(await publishSmall(cacheDir, "2")).toEqual(first);
    expect((await readdir(imagesDir(cacheDir))).sort()).toEqual([first.digest, "by-recipe"].sort());
  }));

test("an image that lost its marker is replaced by the next build", () =>
  withCache(async (cacheDir) => {
    const ref = await publishSmall(cacheDir, "1");
    await rm(join(ref.dir, "COMPLETE"));
    await expect(openImage(cacheDir, ref.digest)).rejects.toMatchObject({ kind: "image_missing" });
    expect(await publishSmall(cacheDir, "2")).toEqual(ref);
    await verifyImage(ref);
  }));

const damages: readonly (readonly [string, (dir: string) => Promise<void>])[] = [
  ["a missing file", (dir) => rm(join(dir, "vmlinuz"))],
  ["a shortened file", (dir) => truncate(join(dir, "root.ext4"), 3)],
  [
    "a folder in place of a file",
    async (dir) => {
      await rm(join(dir, "vmlinuz"));
      await mkdir(join(dir, "vmlinuz"));
    },
  ],
  ["another manifest", (dir) => writeFile(join(dir, "manifest.json"), "{}")],
  ["no manifest", (dir) => rm(join(dir, "manifest.json"))],
];

for (const [what, damage] of damages) {
  test(`an image with ${what} does not open and is not found`, () =>
    withCache(async (cacheDir) => {
      const ref = await publishSmall(cacheDir);
      await rememberRecipe(cacheDir, RECIPE, ref.digest);
      await damage(ref.dir);
      await expect(openImage(cacheDir, ref.digest)).rejects.toMatchObject({ kind: "image_corrupt" });
      expect(await findByRecipe(cacheDir, RECIPE)).toBeUndefined();
    }));
}

test("a changed byte of the same length opens but does not verify", () =>
  withCache(async (cacheDir) => {
    const ref = await publishSmall(cacheDir);
    await writeFile(join(ref.dir, "root.ext4"), "Content of root.ext4");
    await openImage(cacheDir, ref.digest);
    await expect(verifyImage(ref)).rejects.toMatchObject({ kind: "image_corrupt" });
  }));

for (const digest of ["", "..", "../../etc", "A".repeat(64), "0".repeat(63), `${"0".repeat(64)}/x`]) {
  test(`the digest ${JSON.stringify(digest)} is refused`, () =>
    withCache(async (cacheDir) => {
      await expect(openImage(cacheDir, digest)).rejects.toMatchObject({ kind: "image_missing" });
    }));
}

test("a recipe entry that does not hold a digest counts as none", () =>
  withCache(async (cacheDir) => {
    await rememberRecipe(cacheDir, RECIPE, "../../../etc");
    expect(await findByRecipe(cacheDir, RECIPE)).toBeUndefined();
  }));

test("left-over build folders are removed, images stay", () =>
  withCache(async (cacheDir) => {
    const ref = await publishSmall(cacheDir);
    await mkdir(join(buildDirOf(cacheDir, "77"), "deep"), { recursive: true });
    await removeStaleBuilds(cacheDir);
    expect((await readdir(imagesDir(cacheDir))).sort()).toEqual([ref.digest, "by-recipe"].sort());
  }));
