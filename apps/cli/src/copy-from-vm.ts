import { randomBytes } from "node:crypto";
import { constants, mkdirSync, realpathSync, renameSync, rmSync, statSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Failure } from "@capsem/base";
import type { Vm } from "@capsem/sdk";
import { usageError } from "./cli-error.ts";
import type { Context } from "./context.ts";
import { tellLeft, tellProblems } from "./copy-report.ts";
import { counted } from "./copy-to-vm.ts";
import { copiedEvent } from "./evaluate-hint.ts";
import { fetchFolder } from "./folder-copy.ts";
import { cleanedUp } from "./interrupts.ts";
import { checkPlace } from "./local-path.ts";
import { startProgress } from "./progress.ts";
import { renderBytes } from "./render.ts";
import { systemReason } from "./system-words.ts";
import { REPLACING } from "./tree/judge.ts";
import { NAME_BYTES_MAX } from "./tree/limits.ts";
import { placeEntries } from "./tree/unpack.ts";

/** As cp does: into an existing folder, else under the name given. What comes is hostile: see `unpackTree`. */
export async function copyFromVm(context: Context, vm: Vm, source: string, target: string): Promise<number> {
  context.tried.event = copiedEvent("export", source);
  const info = await vm.files.stat(source);
  if (info.type !== "directory") return await copyFile(context, vm, source, target, info.mode & 0o777);
  if (target === "-") throw usageError(`Cannot copy ${JSON.stringify(source)} to -: it is a folder`);
  const contentsOnly = /(^|\/)\.\/?$/.test(source);
  const folder = contentsOnly ? target : placeOf(source, target);
  mkdirSync(folder, { recursive: true });
  const progress = startProgress(context.powers, context.output);
  const links: string[] = [];
  const told = new AbortController();
  const work = async () => {
    const entries = await fetchFolder(vm, source, (path) => links.push(path), told.signal);
    return await placeEntries(entries, folder, {
      judge: REPLACING,
      progress: (count, bytes) => progress.update(`copying: ${count} files, ${renderBytes(bytes)}`),
    });
  };
  return await cleanedUp(context.powers, told, async () => {
    const report = await work().finally(() => progress.end());
    await tellLeft(context, links);
    await tellProblems(context, report);
    const { changed, conflicts, refused } = report;
    if (context.json) await context.output.json({ path: folder, files: changed.length, conflicts, refused });
    return conflicts.length + refused.length === 0 ? 0 : 1;
  });
}

async function copyFile(
  context: Context,
  vm: Vm,
  source: string,
  target: string,
  mode: number,
): Promise<number> {
  if (target === "-") {
    const { body } = await vm.files.readStream(source);
    for await (const part of body) await context.output.print(part);
    return 0;
  }
  const asked = placeOf(source, target);
  checkPlace(asked);
  const told = new AbortController();
  const { size, body } = await vm.files.readStream(source, { signal: told.signal });
  const found = statSync(asked, { throwIfNoEntry: false });
  if (found !== undefined && !found.isFile() && !found.isDirectory())
    return await writeThrough(context, asked, body);
  const place = realPlace(asked);
  return await cleanedUp(context.powers, told, () =>
    replaceFile(context, place, mode, counted(context, body, size)),
  );
}

/** The file is as it was, or has all bytes. */
async function replaceFile(
  context: Context,
  place: string,
  mode: number,
  body: AsyncIterable<Uint8Array>,
): Promise<number> {
  const temporary = join(dirname(place), `.capsem-${randomBytes(8).toString("hex")}`);
  const file = await open(temporary, "wx", mode);
  try {
    let bytes = 0;
    for await (const part of body) {
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

/** A device, pipe or socket is never replaced: what is there gets the bytes. */
async function writeThrough(
  context: Context,
  place: string,
  body: AsyncIterable<Uint8Array>,
): Promise<number> {
  // Not created and not cut: had it become a file meanwhile, that file would be somebody's.
  const file = await open(place, constants.O_WRONLY | constants.O_NOCTTY);
  try {
    if ((await file.stat()).isFile())
      throw new Failure("file_failed", `Cannot copy to ${JSON.stringify(place)}: it was replaced meanwhile`);
    let bytes = 0;
    for await (const part of counted(context, body, null)) {
      await writeAll(file, part, place);
      bytes += part.length;
    }
    if (context.json) await context.output.json({ path: place, bytes });
    return 0;
  } finally {
    await file.close();
  }
}

async function writeAll(file: FileHandle, part: Uint8Array, place: string): Promise<void> {
  try {
    for (let at = 0; at < part.length; ) at += (await file.write(part, at)).bytesWritten;
  } catch (cause) {
    throw new Failure("file_failed", `Cannot write ${JSON.stringify(place)}: ${systemReason(cause)}`, {
      cause,
    });
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
