import { chmod, open, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@capsem/base";
import { imageFailure } from "./error.ts";
import { MANIFEST_BYTES_MAX } from "./limits.ts";
import {
  digestOf,
  encodeManifest,
  fileFactsOf,
  IMAGE_FILES,
  type ImageFile,
  type ImageManifest,
  parseManifest,
  SHA256_PATTERN,
} from "./manifest.ts";

/** A complete image: the digest is its name, `dir` holds root.ext4, vmlinuz, initrd.cpio, pristine.qcow2. */
export interface ImageRef {
  readonly digest: string;
  readonly dir: string;
}

const MARKER = "COMPLETE";
const BUILD_PREFIX = ".build-";

export function imagesDir(cacheDir: string): string {
  return join(cacheDir, "images");
}

/**
 * Opens an image by digest. Cheap: the marker, the manifest's own hash, and the size of every file. The
 * content of the files is `verifyImage`'s.
 */
export async function openImage(
  cacheDir: string,
  digest: string,
): Promise<ImageRef & { readonly manifest: ImageManifest }> {
  if (!SHA256_PATTERN.test(digest)) {
    throw imageFailure("image_missing", `Cannot open image '${digest}': not a digest`);
  }
  const dir = join(imagesDir(cacheDir), digest);
  if (!(await exists(join(dir, MARKER)))) {
    throw imageFailure("image_missing", `Cannot open image '${digest}': not in the cache`);
  }
  const text = await readManifest(dir, digest);
  if (digestOf(text) !== digest) {
    throw imageFailure("image_corrupt", `Cannot open image '${digest}': its manifest has another digest`);
  }
  const manifest = parseManifest(text);
  for (const name of IMAGE_FILES) await checkSize(dir, name, manifest);
  return { digest, dir, manifest };
}

async function readManifest(dir: string, digest: string): Promise<string> {
  const path = join(dir, "manifest.json");
  try {
    if ((await stat(path)).size <= MANIFEST_BYTES_MAX) return await readFile(path, "utf8");
  } catch (cause) {
    throw imageFailure("image_corrupt", `Cannot open image '${digest}': no readable manifest`, { cause });
  }
  throw imageFailure("image_corrupt", `Cannot open image '${digest}': its manifest is too large`);
}

async function checkSize(dir: string, name: ImageFile, manifest: ImageManifest): Promise<void> {
  const expected = manifest.files[name].bytes;
  const found = await stat(join(dir, name)).then(
    (facts) => (facts.isFile() ? facts.size : -1),
    () => -1,
  );
  if (found === expected) return;
  throw imageFailure(
    "image_corrupt",
    `Cannot open image file '${name}': ${found < 0 ? "missing" : `${found} bytes`} instead of ${expected} bytes`,
  );
}

/** Reads every byte of an image (about a second) and compares with the manifest. */
export async function verifyImage(ref: ImageRef, signal?: AbortSignal): Promise<void> {
  const manifest = parseManifest(await readManifest(ref.dir, ref.digest));
  for (const name of IMAGE_FILES) {
    await checkSize(ref.dir, name, manifest);
    const found = await fileFactsOf(join(ref.dir, name), signal);
    if (found.sha256 !== manifest.files[name].sha256) {
      throw imageFailure(
        "image_corrupt",
        `Cannot use image file '${name}': its content is not the manifest's`,
      );
    }
  }
}

/** The image that a recipe gave last, if it is still whole; a damaged one counts as none. */
export async function findByRecipe(cacheDir: string, recipeHash: string): Promise<ImageRef | undefined> {
  const path = join(imagesDir(cacheDir), "by-recipe", recipeHash);
  const digest = await readFile(path, "utf8").then(
    (text) => text.trim(),
    () => undefined,
  );
  if (digest === undefined) return undefined;
  const image = await openImage(cacheDir, digest).catch(() => undefined);
  return image === undefined ? undefined : { digest: image.digest, dir: image.dir };
}

export async function rememberRecipe(cacheDir: string, recipeHash: string, digest: string): Promise<void> {
  const path = join(imagesDir(cacheDir), "by-recipe", recipeHash);
  await writeFile(`${path}.new`, `${digest}\n`);
  await rename(`${path}.new`, path);
}

/**
 * Gives a finished build folder its name. The marker goes in last, after everything else is on the disk, and
 * the rename makes the image appear whole or not at all. If the image is there already, the build is dropped.
 */
export async function publishImage(
  cacheDir: string,
  buildDir: string,
  manifest: ImageManifest,
): Promise<ImageRef> {
  const text = encodeManifest(manifest);
  const digest = digestOf(text);
  const dir = join(imagesDir(cacheDir), digest);
  const present = await openImage(cacheDir, digest).catch(() => undefined);
  if (present !== undefined) {
    await rm(buildDir, { recursive: true, force: true });
    return { digest, dir };
  }
  await writeFile(join(buildDir, "manifest.json"), text);
  for (const name of [...IMAGE_FILES, "manifest.json"]) {
    // QEMU opens kernel and initramfs again as a user of its own: the builder's umask must not shut it out.
    await chmod(join(buildDir, name), 0o644);
    await settle(join(buildDir, name));
  }
  await writeFile(join(buildDir, MARKER), "");
  await settle(buildDir);
  await rm(dir, { recursive: true, force: true });
  await rename(buildDir, dir);
  return { digest, dir };
}

/** Only under the build lock: every build folder is then one that nobody works in. */
export async function removeStaleBuilds(cacheDir: string): Promise<void> {
  for (const name of await readdir(imagesDir(cacheDir))) {
    if (!name.startsWith(BUILD_PREFIX)) continue;
    await rm(join(imagesDir(cacheDir), name), { recursive: true, force: true });
  }
}

export function buildDirOf(cacheDir: string, name: string): string {
  return join(imagesDir(cacheDir), `${BUILD_PREFIX}${name}`);
}

async function settle(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } catch (cause) {
    throw imageFailure("image_no_space", `Cannot store image: ${messageOf(cause)}`, { cause });
  } finally {
    await handle.close();
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
