import { randomBytes } from "node:crypto";
import { mkdirSync, realpathSync, renameSync, rmSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Vm } from "@capsem/sdk";
import { usageError } from "./cli-error.ts";
import type { Context } from "./context.ts";
import { counted } from "./copy-to-vm.ts";
import { startProgress } from "./progress.ts";
import { renderBytes } from "./render.ts";
import { REPLACING } from "./tree/judge.ts";
import { NAME_BYTES_MAX } from "./tree/limits.ts";
import { unpackTree } from "./tree/unpack.ts";
import { tellProblems } from "./workspace-copy.ts";

/** As cp does: into an existing folder, else under the name given. What comes is hostile: see `unpackTree`. */
export async function copyFromVm(context: Context, vm: Vm, source: string, target: string): Promise<number> {
  const info = await vm.files.stat(source);
  if (info.type !== "directory") return await copyFile(context, vm, source, target, info.mode & 0o777);
  if (target === "-") throw usageError(`Cannot copy ${JSON.stringify(source)} to -: it is a folder`);
  const contentsOnly = /(^|\/)\.\/?$/.test(source);
  const folder = contentsOnly ? target : placeOf(source, target);
  mkdirSync(folder, { recursive: true });
  const progress = startProgress(context.powers, context.output);
  const work = async () => {
    const tar = await vm.trees.read(source);
    return await unpackTree(tar, folder, {
      judge: REPLACING,
      progress: (entries, bytes) => progress.update(`copying: ${entries} files, ${renderBytes(bytes)}`),
    });
  };
  const report = await work().finally(() => progress.end());
  await tellProblems(context, report);
  const { changed, conflicts, refused } = report;
  if (context.json) await context.output.json({ path: folder, files: changed.length, conflicts, refused });
  return conflicts.length + refused.length === 0 ? 0 : 1;
}

async function copyFile(
  context: Context,
  vm: Vm,
  source: string,
  target: string,
  mode: number,
): Promise<number> {
  const { size, body } = await vm.files.readStream(source);
  if (target === "-") {
    for await (const part of body) await context.output.print(part);
    return 0;
  }
  const place = realPlace(placeOf(source, target));
  const temporary = join(dirname(place), `.capsem-${randomBytes(8).toString("hex")}`);
  const file = await open(temporary, "wx", mode);
  try {
    let bytes = 0;
    for await (const part of counted(context, body, size)) {
      await file.writeFile(part);
      bytes += part.length;
    }
    await file.close();
    renameSync(temporary, place);
    if (context.json) await context.output.json({ path: place, bytes });
    return 0;
  } catch (thrown) {
    await file.close();
    rmSync(temporary, { force: true });
    throw thrown;
  }
}

function placeOf(source: string, target: string): string {
  const folder = statSync(target, { throwIfNoEntry: false })?.isDirectory() === true;
  if (!folder && !target.endsWith("/")) return target;
  const name = basename(source);
  if (name === "" || name === ".." || Buffer.byteLength(name) > NAME_BYTES_MAX)
    throw usageError(`Cannot copy ${JSON.stringify(source)}: it has no name to keep`);
  return join(target, name);
}

/** A link that the user names as the target is written through, as cp does. */
function realPlace(place: string): string {
  return statSync(place, { throwIfNoEntry: false }) === undefined ? place : realpathSync(place);
}
