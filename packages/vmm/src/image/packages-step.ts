import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { reachSettings } from "./apt-config.ts";
import { type AptSource, buildLine } from "./apt-sources.ts";
import { type BuildContext, runStep, toolEnv } from "./build-context.ts";
import { DOWNLOAD_TIMEOUT_MS, STEP_TIMEOUT_MS } from "./limits.ts";
import { progressOfLine } from "./progress.ts";
import { BUILD_EPOCH_S } from "./recipe.ts";

/** Fixed identities: two builds of the same files give the same bytes, and nobody mounts by these. */
const ROOT_UUID = "ca95e300-0000-4000-8000-000000000001";
const ROOT_HASH_SEED = "ca95e300-0000-4000-8000-000000000002";

/** How apt reaches the host's sources, in a form that mmdebstrap and apt both take. */
export interface AptReach {
  readonly lines: readonly string[];
  readonly settings: readonly string[];
}

export async function readAptReach(context: BuildContext, sources: readonly AptSource[]): Promise<AptReach> {
  const dump = await runStep(context, {
    program: "apt-config",
    args: ["dump"],
    timeoutMs: STEP_TIMEOUT_MS,
    purpose: "read apt's settings",
  });
  const lines: string[] = [];
  for (const [index, source] of sources.entries()) {
    lines.push(buildLine(await withKeyFile(context, source, index)));
  }
  return { lines, settings: reachSettings(dump) };
}

/** A key inside a source needs a file that apt can name; it must be readable in the user namespace. */
async function withKeyFile(context: BuildContext, source: AptSource, index: number): Promise<AptSource> {
  if (source.embeddedKey === undefined) return source;
  const path = join(context.outDir, `source-${index}.asc`);
  await writeFile(path, source.embeddedKey);
  await chmod(path, 0o644);
  return { ...source, options: { ...source.options, "signed-by": path } };
}

/**
 * Installs the packages and writes `root.ext4`, `busybox` and `status` into `outDir`. The disk is made inside
 * mmdebstrap's last hook, where the files have their right owners, also for a user who is not root. The hook
 * waits for `stage.ready` in `outDir`.
 */
export async function installPackages(context: BuildContext, reach: AptReach): Promise<void> {
  const { recipe, outDir, scratchDir, powers } = context;
  for (const [name, text] of recipe.scripts) {
    await writeFile(join(outDir, name), text);
    await chmod(join(outDir, name), 0o755);
  }
  const settings = [...reach.settings, 'Acquire::Languages "none";', 'APT::Install-Recommends "false";'];
  await runStep(context, {
    program: "mmdebstrap",
    args: [
      `--mode=${powers.userId === 0 ? "root" : "unshare"}`,
      "--variant=minbase",
      "--format=null",
      `--architectures=${recipe.platform.debianArch}`,
      `--include=${recipe.list.packages.join(",")}`,
      ...settings.map((setting) => `--aptopt=${setting}`),
      "--dpkgopt=force-unsafe-io",
      // The disk is written by then; the root that would be cleaned up is thrown away.
      "--skip=cleanup",
      `--essential-hook=${join(outDir, "before-packages.sh")}`,
      `--customize-hook=${join(outDir, "finish-root.sh")}`,
      recipe.platform.codename,
      "-",
      ...reach.lines,
    ],
    cwd: scratchDir,
    env: toolEnv(powers.env, {
      TMPDIR: scratchDir,
      SOURCE_DATE_EPOCH: String(BUILD_EPOCH_S),
      CAPSEM_OUT: outDir,
      CAPSEM_EPOCH: String(BUILD_EPOCH_S),
      CAPSEM_UUID: ROOT_UUID,
      CAPSEM_HASH_SEED: ROOT_HASH_SEED,
    }),
    timeoutMs: DOWNLOAD_TIMEOUT_MS,
    purpose: "install the image's packages",
    onLine: (line) => {
      const progress = progressOfLine(line);
      if (progress !== undefined) context.onProgress(progress);
    },
  });
}
