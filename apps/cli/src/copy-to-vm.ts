import { createReadStream, statSync } from "node:fs";
import { basename, posix, resolve } from "node:path";
import { CapsemError, type Vm } from "@capsem/sdk";
import { usageError } from "./cli-error.ts";
import type { Context } from "./context.ts";
import { tellRefused } from "./copy-report.ts";
import { copiedEvent, fileEvent } from "./evaluate-hint.ts";
import { sendFolder } from "./folder-copy.ts";
import { sourceMissing } from "./local-path.ts";
import { startProgress } from "./progress.ts";
import { renderBytes } from "./render.ts";

const READ_BYTES = 256 * 1024;
const UNSEEN: ReadonlySet<string> = new Set(["file_not_found", "file_not_permitted"]);

/** As cp does: into an existing folder, else under the name given. */
export async function copyToVm(context: Context, vm: Vm, source: string, target: string): Promise<number> {
  if (source === "-") {
    if (await isFolder(vm, target))
      throw usageError(`Cannot copy - to ${JSON.stringify(target)}: it is a folder`);
    context.tried.event = copiedEvent("import", target);
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
    context.tried.event = copiedEvent("import", place);
    const body = counted(context, readLocal(source, stat.size), stat.size);
    const { bytes } = await vm.files.write(place, body, {
      mode: stat.mode & 0o777,
      ...(stat.size > 0 || (await isEmpty(source)) ? { size: stat.size } : {}),
    });
    return await done(context, place, bytes);
  }
  context.tried.event = fileEvent({ "file.create.path": place });
  await vm.files.mkdir(place, { parents: true });
  context.tried.event = copiedEvent("import", place);
  const { bytes, refused } = await sendFolder(context, vm, source, place);
  await tellRefused(context, refused);
  if (context.json) await context.output.json({ path: place, bytes, refused });
  return refused.length === 0 ? 0 : 1;
}

/**
 * Not more than was promised; the request ends where there is less. Files of /proc say that they are empty, and are
 * not: these are read to their end, and only what has none is promised to be empty.
 */
function readLocal(source: string, size: number): AsyncIterable<Uint8Array> {
  const end = size === 0 ? Number.POSITIVE_INFINITY : size - 1;
  return createReadStream(source, { highWaterMark: READ_BYTES, end });
}

async function isEmpty(source: string): Promise<boolean> {
  for await (const _ of readLocal(source, 0)) return false;
  return true;
}

async function isFolder(vm: Vm, path: string): Promise<boolean> {
  try {
    return (await vm.files.stat(path)).type === "directory";
  } catch (thrown) {
    // Of what may not be looked at, writing there says what is in the way.
    if (thrown instanceof CapsemError && UNSEEN.has(thrown.kind)) return false;
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
