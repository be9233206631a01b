import { copyFile, mkdir, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { join } from "node:path";
import { type AptSource, readAptSources } from "./apt-sources.ts";
import { type BuildContext, runStep } from "./build-context.ts";
import { takeBuildLock } from "./build-lock.ts";
import {
  buildDirOf,
  findByRecipe,
  type ImageRef,
  imagesDir,
  publishImage,
  rememberRecipe,
  removeStaleBuilds,
} from "./image-store.ts";
import { encodeInitramfs } from "./initramfs.ts";
import type { KernelModule } from "./kernel-modules.ts";
import { type UnpackedKernel, unpackKernel } from "./kernel-step.ts";
import { STEP_TIMEOUT_MS } from "./limits.ts";
import { type ImageManifest, imageFilesOf, parsePackageList } from "./manifest.ts";
import { loadModules } from "./module-set.ts";
import { downloadNode, unpackNode } from "./node-step.ts";
import { installPackages, readAptReach } from "./packages-step.ts";
import type { ImagePowers } from "./powers.ts";
import { makePristineDisk } from "./pristine-disk.ts";
import { forwardOnly, type OnProgress } from "./progress.ts";
import { parsePlatform, type Recipe, readRecipe } from "./recipe.ts";
import { checkPrograms, checkUserIds } from "./requirements.ts";
import {
  checkCacheSpace,
  chooseScratchRoot,
  makeScratch,
  removeScratch,
  removeStaleScratch,
} from "./scratch.ts";
import { finishStage } from "./stage-step.ts";

const APT_DIR = "/etc/apt";
const OS_RELEASE_PATH = "/etc/os-release";

export interface BuildImageOptions {
  readonly cacheDir: string;
  /** The folder with recipe.json. */
  readonly recipeDir: string;
  /** Build although the recipe has an image: newer packages of the same names make a new image. */
  readonly refresh?: boolean;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

/**
 * The image of a recipe: the cached one at once, else built (about a minute). Of several callers one builds
 * and the others wait for it. Throws `image_*` failures, `cancelled`, `timeout`; leaves no files behind then.
 */
export async function buildImage(powers: ImagePowers, options: BuildImageOptions): Promise<ImageRef> {
  const platform = parsePlatform(powers.arch, await readFile(OS_RELEASE_PATH, "utf8"));
  const recipe = await readRecipe(options.recipeDir, platform);
  if (options.refresh !== true) {
    const present = await findByRecipe(options.cacheDir, recipe.hash);
    if (present !== undefined) return present;
  }
  await mkdir(join(imagesDir(options.cacheDir), "by-recipe"), { recursive: true });
  const onProgress = forwardOnly(options.onProgress);
  const lock = await takeBuildLock({
    folder: await realpath(imagesDir(options.cacheDir)),
    pid: powers.pid,
    signal: options.signal,
    onWait: (pid) =>
      onProgress({ step: "wait", message: `Process ${pid} builds this image, waiting for it` }),
  });
  try {
    const present = options.refresh === true ? undefined : await findByRecipe(options.cacheDir, recipe.hash);
    if (present !== undefined) return present;
    return await buildLocked(powers, { ...options, onProgress }, recipe, lock.name);
  } finally {
    await lock.release();
  }
}

async function buildLocked(
  powers: ImagePowers,
  options: BuildImageOptions & { readonly onProgress: OnProgress },
  recipe: Recipe,
  lockName: string,
): Promise<ImageRef> {
  const { cacheDir, onProgress } = options;
  onProgress({ step: "check", message: "Checking the host", fraction: 0 });
  await checkPrograms(powers.userId === 0, powers.env.PATH ?? "");
  if (powers.userId !== 0) {
    const subuid = await readFile("/etc/subuid", "utf8").catch(() => "");
    checkUserIds(userInfo().username, powers.userId, subuid);
  }
  await removeStaleScratch(powers, lockName);
  await removeStaleBuilds(cacheDir);
  await checkCacheSpace(cacheDir);
  const sources = await readAptSources(APT_DIR, recipe.platform.codename);
  const scratch = await makeScratch(await chooseScratchRoot(powers.env), lockName);
  const buildDir = buildDirOf(cacheDir, String(powers.pid));
  const stopper = new AbortController();
  const signal =
    options.signal === undefined ? stopper.signal : AbortSignal.any([options.signal, stopper.signal]);
  const context: BuildContext = {
    powers,
    recipe,
    scratchDir: scratch.dir,
    outDir: scratch.outDir,
    buildDir,
    signal,
    onProgress,
  };
  try {
    await mkdir(buildDir);
    const manifest = await fillBuildDir(context, sources, stopper);
    const image = await publishImage(cacheDir, buildDir, manifest);
    await rememberRecipe(cacheDir, recipe.hash, image.digest);
    onProgress({ step: "done", message: `Image ${image.digest.slice(0, 12)} is ready`, fraction: 1 });
    return image;
  } finally {
    await removeScratch(powers, scratch.dir);
    await rm(buildDir, { recursive: true, force: true });
  }
}

/** Runs the slow steps side by side. The first failure stops the others, and all have ended when we return. */
async function fillBuildDir(
  context: BuildContext,
  sources: readonly AptSource[],
  stopper: AbortController,
): Promise<ImageManifest> {
  const reach = await readAptReach(context, sources);
  const stageDir = join(context.scratchDir, "stage");
  await mkdir(stageDir);
  let failed: { readonly reason: unknown } | undefined;
  const guarded = <T>(work: Promise<T>): Promise<T> =>
    work.catch((reason: unknown) => {
      failed ??= { reason };
      stopper.abort();
      throw reason;
    });
  const kernelReady = guarded(unpackKernel(context, reach));
  const nodeReady = guarded(
    downloadNode(context).then((archives) => unpackNode(context, archives, stageDir)),
  );
  const staged = guarded(stageFiles(context, stageDir, sources, kernelReady, nodeReady));
  const installed = guarded(installPackages(context, reach));
  const disk = guarded(makePristineDisk(context));
  await Promise.allSettled([kernelReady, nodeReady, staged, installed, disk]);
  if (failed !== undefined) throw failed.reason;
  return finishBuildDir(context, await kernelReady);
}

async function stageFiles(
  context: BuildContext,
  stageDir: string,
  sources: readonly AptSource[],
  kernelReady: Promise<UnpackedKernel>,
  nodeReady: Promise<void>,
): Promise<void> {
  const [kernel] = await Promise.all([kernelReady, nodeReady]);
  context.onProgress({ step: "node", message: "Kernel and Node are unpacked" });
  const modules = await loadModules(kernel, context.recipe.list.rootModules);
  await finishStage(context, stageDir, sources, kernel.version, modules);
}

async function finishBuildDir(context: BuildContext, kernel: UnpackedKernel): Promise<ImageManifest> {
  const { recipe, outDir, buildDir, onProgress, signal } = context;
  onProgress({ step: "disks", message: "Storing the image", fraction: 0.95 });
  const modules: KernelModule[] = await loadModules(kernel, recipe.list.initramfsModules);
  const busybox = await readFile(join(outDir, "busybox"));
  await writeFile(join(buildDir, "initrd.cpio"), encodeInitramfs(recipe.init, busybox, modules));
  await copyFile(kernel.vmlinuzPath, join(buildDir, "vmlinuz"));
  await runStep(context, {
    program: "cp",
    args: ["--sparse=always", join(outDir, "root.ext4"), join(buildDir, "root.ext4")],
    timeoutMs: STEP_TIMEOUT_MS,
    purpose: "store the root disk",
  });
  onProgress({ step: "verify", message: "Writing down what is in the image", fraction: 0.97 });
  const packages = parsePackageList(await readFile(join(outDir, "status"), "utf8"));
  return {
    format: 1,
    recipe: recipe.hash,
    suite: recipe.platform.codename,
    arch: recipe.platform.debianArch,
    kernelVersion: kernel.version,
    nodeVersion: recipe.list.nodeVersion,
    npmVersion: recipe.list.npmVersion,
    packages: [...packages, kernel.packageVersion].sort(),
    files: await imageFilesOf(buildDir, signal),
  };
}
