import { chmod, mkdir, rename, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type AptSource, guestLine } from "./apt-sources.ts";
import { type BuildContext, runStep } from "./build-context.ts";
import { type KernelModule, modulesAliasText, modulesDepText } from "./kernel-modules.ts";
import { STEP_TIMEOUT_MS } from "./limits.ts";
import { BUILD_EPOCH_S } from "./recipe.ts";

/** Our own small files of the guest's root. */
export function guestFiles(sources: readonly AptSource[]): Readonly<Record<string, string>> {
  const lines = sources.flatMap((source) => guestLine(source) ?? []);
  return {
    "etc/apt/sources.list": lines.map((line) => `${line}\n`).join(""),
    "etc/default/locale": "LANG=C.UTF-8\n",
    "etc/environment": 'PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"\nLANG=C.UTF-8\n',
    "etc/hostname": "capsem\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
    // A plain file, not a link: without a name server in it the resolver asks the loopback address.
    "etc/resolv.conf": "",
    // A VM has a name of its own that no resolver knows: sudo must not look for it.
    "etc/sudoers.d/capsem": "Defaults !fqdn\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n",
    "usr/local/etc/npmrc": "audit=false\nfund=false\nupdate-notifier=false\n",
  };
}

const LINKS: Readonly<Record<string, string>> = {
  "usr/local/bin/npm": "../lib/node_modules/npm/bin/npm-cli.js",
  "usr/local/bin/npx": "../lib/node_modules/npm/bin/npx-cli.js",
};

/** Puts our files, the kernel modules and what is already in `stageDir` into `stage.tar` for the root disk. */
export async function finishStage(
  context: BuildContext,
  stageDir: string,
  sources: readonly AptSource[],
  kernelVersion: string,
  modules: readonly KernelModule[],
): Promise<void> {
  for (const [path, text] of Object.entries(guestFiles(sources))) await put(join(stageDir, path), text);
  for (const [path, target] of Object.entries(LINKS)) await symlink(target, join(stageDir, path));
  const modulesDir = join(stageDir, "usr/lib/modules", kernelVersion);
  for (const module of modules) await put(join(modulesDir, module.path), module.bytes);
  await put(join(modulesDir, "modules.dep"), modulesDepText(modules));
  await put(join(modulesDir, "modules.alias"), modulesAliasText(modules));
  await packStage(context, stageDir);
}

async function put(path: string, content: string | Uint8Array): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content);
}

/** Sorted, owned by root, of a fixed time: the same files give the same archive. */
async function packStage(context: BuildContext, stageDir: string): Promise<void> {
  const tarPath = join(context.outDir, "stage.tar");
  await runStep(context, {
    program: "tar",
    args: [
      "--create",
      `--file=${tarPath}`,
      "--sort=name",
      "--owner=0",
      "--group=0",
      "--numeric-owner",
      // The builder's umask must not decide who may read the guest's files.
      "--mode=u+rw,go+rX,go-w",
      `--mtime=@${BUILD_EPOCH_S}`,
      `--directory=${stageDir}`,
      ".",
    ],
    timeoutMs: STEP_TIMEOUT_MS,
    purpose: "collect the image's files",
  });
  await chmod(tarPath, 0o644);
  await writeFile(join(context.outDir, "stage.new"), "");
  await rename(join(context.outDir, "stage.new"), join(context.outDir, "stage.ready"));
}
