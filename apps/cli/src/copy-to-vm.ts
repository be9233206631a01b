import { createReadStream, statSync } from "node:fs";
import { basename, posix, resolve } from "node:path";
import { CapsemError, type Vm } from "@capsem/sdk";
import { usageError } from "./cli-error.ts";
import type { Context } from "./context.ts";
import { sourceMissing } from "./local-path.ts";
import { startProgress } from "./progress.ts";
import { printable, renderBytes } from "./render.ts";
import { packTree } from "./tree/pack.ts";

const READ_BYTES = 256 * 1024;

/** As cp does: into an existing folder, else under the name given. */
export async function copyToVm(context: Context, vm: Vm, source: string, target: string): Promise<number> {
  if (source === "-") {
    if (await isFolder(vm, target))
      throw usageError(`Cannot copy - to ${JSON.stringify(target)}: it is a folder`);
    const { bytes } = await vm.files.write(target, counted(context, context.powers.stdin.bytes(), null));
    return await done(context, target, bytes);
  }
  // A link that the user names is followed, those below it are not.
  const stat = statSync(source, { throwIfNoEntry: false });
  if (stat === undefined) throw sourceMissing(source);
  if (!stat.isFile() && !stat.isDirectory())
    throw usageError(`Cannot copy ${JSON.stringify(source)}: it is not a file or folder`);
  const contentsOnly = /(^|\/)\.\/?$/.test(source);
  const into =
    !(stat.isDirectory() && contentsOnly) && (target.endsWith("/") || (await isFolder(vm, target)));
  const place = into ? posix.join(target, basename(resolve(source))) : target;
  if (stat.isFile()) {
    const body = counted(context, createReadStream(source, { highWaterMark: READ_BYTES }), stat.size);
    const { bytes } = await vm.files.write(place, body, { mode: stat.mode & 0o777 });
    return await done(context, place, bytes);
  }
  return await done(context, place, await writeTree(context, vm, source, place));
}

async function writeTree(context: Context, vm: Vm, source: string, place: string): Promise<number> {
  const progress = startProgress(context.powers, context.output);
  const warnings: string[] = [];
  const { tar } = packTree(source, {
    warn: (text) => warnings.push(text),
    progress: (entries, bytes) => progress.update(`copying: ${entries} files, ${renderBytes(bytes)}`),
  });
  try {
    await vm.files.mkdir(place, { parents: true });
    return (await vm.trees.write(place, tar)).bytes;
  } finally {
    progress.end();
    for (const warning of warnings) await context.output.say(printable(warning));
  }
}

async function isFolder(vm: Vm, path: string): Promise<boolean> {
  try {
    return (await vm.files.stat(path)).type === "directory";
  } catch (thrown) {
    if (thrown instanceof CapsemError && thrown.kind === "file_not_found") return false;
    throw thrown;
  }
}

/** The same bytes, with their progress shown. */
export async function* counted(
  { powers, output }: Context,
  source: AsyncIterable<Uint8Array>,
  size: number | null,
): AsyncGenerator<Uint8Array> {
  const progress = startProgress(powers, output);
  const whole = size === null ? "" : ` of ${renderBytes(size)}`;
  let bytes = 0;
  try {
    for await (const part of source) {
      bytes += part.length;
      progress.update(`copying: ${renderBytes(bytes)}${whole}`);
      yield part;
    }
  } finally {
    progress.end();
  }
}

async function done({ output, json }: Context, path: string, bytes: number): Promise<number> {
  if (json) await output.json({ path, bytes });
  return 0;
}
