import { posix } from "node:path";
import type { Vm } from "@capsem/sdk";
import type { Context } from "./context.ts";
import { tellLeft } from "./copy-report.ts";
import { needsFiles, refusalOf } from "./file-refusal.ts";
import { startProgress } from "./progress.ts";
import { printable, renderBytes } from "./render.ts";
import type { SendReport } from "./tree/send-files.ts";
import type { TreeEntry } from "./tree/tree-entry.ts";

/** One control message of the guest holds no more. */
const LIST_PAGE = 256;

/** A folder of ours into one of a VM, which is there: as one tree, or file by file where a rule judges each. */
export async function sendFolder(
  context: Context,
  vm: Vm,
  folder: string,
  place: string,
  doing = "copying",
): Promise<SendReport> {
  const progress = startProgress(context.powers, context.output);
  const warnings = new Set<string>();
  const options = {
    warn: (text: string) => warnings.add(text),
    progress: (entries: number, bytes: number) =>
      progress.update(`${doing}: ${entries} files, ${renderBytes(bytes)}`),
  };
  let report: SendReport;
  try {
    report = await sendTree(vm, folder, place, options);
  } finally {
    progress.end();
    for (const warning of warnings) await context.output.say(printable(warning));
  }
  await tellLeft(context, report.links);
  return report;
}

async function sendTree(
  vm: Vm,
  folder: string,
  place: string,
  options: { warn: (text: string) => void; progress: (entries: number, bytes: number) => void },
): Promise<SendReport> {
  const { packTree } = await import("./tree/pack.ts");
  const { tar, baseline } = packTree(folder, options);
  try {
    const { bytes } = await vm.trees.write(place, tar);
    return { baseline, bytes, refused: [], links: [] };
  } catch (thrown) {
    if (!needsFiles(thrown)) throw thrown;
  }
  const { sendFiles } = await import("./tree/send-files.ts");
  const at = (path: string) => posix.join(place, path);
  return await sendFiles(
    folder,
    {
      makeFolder: (path) => vm.files.mkdir(at(path), { parents: true }),
      write: (path, body, about) => vm.files.write(at(path), body, about),
      refusalOf,
    },
    options,
  );
}

/** What is in a folder of a VM, the other way round, until `signal`. `left` is told of links that stay there. */
export async function fetchFolder(
  vm: Vm,
  place: string,
  left: (path: string) => void,
  signal: AbortSignal,
): Promise<AsyncIterable<TreeEntry>> {
  try {
    const tar = await vm.trees.read(place, { signal });
    const { readTar } = await import("./tree/tar-reader.ts");
    return readTar(tar);
  } catch (thrown) {
    if (!needsFiles(thrown)) throw thrown;
  }
  const { fetchFiles } = await import("./tree/fetch-files.ts");
  const at = (path: string) => posix.join(place, path);
  return fetchFiles({
    list: (path, offset) => vm.files.list(at(path), { offset, limit: LIST_PAGE, signal }),
    open: (path) => vm.files.readStream(at(path), { signal }),
    refusalOf,
    left,
  });
}
