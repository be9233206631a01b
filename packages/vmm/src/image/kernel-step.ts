import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { basename, join, relative } from "node:path";
import { type BuildContext, runStep, toolEnv } from "./build-context.ts";
import { imageFailure } from "./error.ts";
import { type KernelModule, moduleNameOf, parseModuleFacts } from "./kernel-modules.ts";
import { DOWNLOAD_TIMEOUT_MS, STEP_TIMEOUT_MS } from "./limits.ts";
import type { AptReach } from "./packages-step.ts";

/** Debian's cloud kernel, unpacked and never installed. */
export interface UnpackedKernel {
  readonly version: string;
  /** `name=version` of its package. */
  readonly packageVersion: string;
  readonly vmlinuzPath: string;
  loadModule(name: string): Promise<KernelModule | undefined>;
}

export async function unpackKernel(context: BuildContext, reach: AptReach): Promise<UnpackedKernel> {
  const dir = join(context.scratchDir, "kernel");
  await mkdir(join(dir, "root"), { recursive: true });
  const debPath = await downloadKernel(context, reach, dir);
  await runStep(context, {
    program: "dpkg-deb",
    args: ["--extract", debPath, join(dir, "root")],
    timeoutMs: STEP_TIMEOUT_MS,
    purpose: "unpack the kernel",
  });
  return readKernel(context, join(dir, "root"), packageVersionOf(debPath));
}

/**
 * An apt of our own beside the host's: the host's package lists may be old or absent, and only root may renew
 * them. The meta package names the current kernel.
 */
async function downloadKernel(context: BuildContext, reach: AptReach, dir: string): Promise<string> {
  await mkdir(join(dir, "lists", "partial"), { recursive: true });
  await mkdir(join(dir, "cache", "archives", "partial"), { recursive: true });
  await writeFile(join(dir, "status"), "");
  await writeFile(join(dir, "sources.list"), `${reach.lines.join("\n")}\n`);
  await writeFile(join(dir, "apt.conf"), privateAptConfig(context, reach, dir));
  const apt = (program: string, args: readonly string[], purpose: string): Promise<string> =>
    runStep(context, {
      program,
      args,
      cwd: dir,
      env: toolEnv(context.powers.env, { APT_CONFIG: join(dir, "apt.conf") }),
      timeoutMs: DOWNLOAD_TIMEOUT_MS,
      purpose,
    });
  await apt("apt-get", ["update", "--quiet"], "read Debian's package lists");
  const metaPackage = context.recipe.platform.kernelPackage;
  const depends = await apt("apt-cache", ["depends", metaPackage], "find the kernel package");
  const name = /^\s*Depends: (linux-image-[a-z0-9.+~-]+)$/m.exec(depends)?.[1];
  if (name === undefined) {
    throw imageFailure("image_build_failed", `Cannot find the kernel package: '${metaPackage}' names none`);
  }
  await apt("apt-get", ["download", "--quiet", name], "download the kernel");
  const file = (await readdir(dir)).find((each) => each.startsWith(`${name}_`) && each.endsWith(".deb"));
  if (file === undefined) {
    throw imageFailure("image_build_failed", `Cannot download the kernel: apt stored no '${name}' package`);
  }
  return join(dir, file);
}

/** The host's own configuration is not read: its hooks would run. */
function privateAptConfig(context: BuildContext, reach: AptReach, dir: string): string {
  return [
    'Dir::Etc::main "/dev/null";',
    'Dir::Etc::parts "/dev/null";',
    'Dir::Etc::sourceparts "/dev/null";',
    `Dir::Etc::sourcelist "${dir}/sources.list";`,
    `Dir::State "${dir}";`,
    `Dir::State::lists "${dir}/lists";`,
    `Dir::State::status "${dir}/status";`,
    `Dir::Cache "${dir}/cache";`,
    `APT::Architecture "${context.recipe.platform.debianArch}";`,
    // Its folder is ours alone, so apt's download user could not write there.
    'APT::Sandbox::User "root";',
    ...reach.settings,
    'Acquire::Languages "none";',
    "",
  ].join("\n");
}

/** `linux-image-6.1.0-57-cloud-amd64_6.1.192-3_amd64.deb` -> `name=6.1.192-3`; apt writes a colon as %3a. */
export function packageVersionOf(debPath: string): string {
  const [name = "", version = ""] = basename(debPath).split("_");
  return `${name}=${version.replaceAll("%3a", ":")}`;
}

async function readKernel(
  context: BuildContext,
  root: string,
  packageVersion: string,
): Promise<UnpackedKernel> {
  const image = (await readdir(join(root, "boot"))).find((name) => name.startsWith("vmlinuz-"));
  if (image === undefined) {
    throw imageFailure("image_build_failed", "Cannot use the kernel package: it holds no vmlinuz");
  }
  const version = image.slice("vmlinuz-".length);
  const modulesDir = await findModulesDir(root, version);
  const files = new Map<string, string>();
  for (const entry of await readdir(modulesDir, { recursive: true, withFileTypes: true })) {
    const name = moduleNameOf(entry.name);
    if (name !== undefined && entry.isFile()) files.set(name, join(entry.parentPath, entry.name));
  }
  return {
    version,
    packageVersion,
    vmlinuzPath: join(root, "boot", image),
    loadModule: async (name) => {
      const path = files.get(name);
      if (path === undefined) return undefined;
      const bytes = await readModule(context, path);
      return {
        ...parseModuleFacts(name, bytes),
        bytes,
        path: relative(modulesDir, path).replace(/\.xz$/, ""),
      };
    },
  };
}

async function findModulesDir(root: string, version: string): Promise<string> {
  for (const lib of ["usr/lib/modules", "lib/modules"]) {
    const dir = join(root, lib, version);
    const found = await readdir(dir).then(
      () => true,
      () => false,
    );
    if (found) return dir;
  }
  throw imageFailure("image_build_failed", `Cannot use the kernel package: no modules for '${version}'`);
}

/** Newer releases compress their modules; the guest's busybox loads plain ones. */
async function readModule(context: BuildContext, path: string): Promise<Uint8Array> {
  if (!path.endsWith(".xz")) return readFile(path);
  await runStep(context, {
    program: "xz",
    args: ["--decompress", "--keep", "--force", path],
    timeoutMs: STEP_TIMEOUT_MS,
    purpose: "unpack a kernel module",
  });
  return readFile(path.replace(/\.xz$/, ""));
}
