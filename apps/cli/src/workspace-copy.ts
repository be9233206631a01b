import { statSync } from "node:fs";
import { Failure } from "@capsem/base";
import type { Vm } from "@capsem/sdk";
import { usageError } from "./cli-error.ts";
import type { Context } from "./context.ts";
import { listed, tellLeft, tellProblems, tellRefused } from "./copy-report.ts";
import { fetchFolder, sendFolder } from "./folder-copy.ts";
import { startProgress } from "./progress.ts";
import { counted, renderBytes } from "./render.ts";
import type { Baseline } from "./tree/baseline.ts";
import type { HomeReport } from "./tree/come-home.ts";

const WORKSPACE = "/workspace";

export interface Copied {
  readonly folder: string;
  readonly baseline: Baseline;
}

export function checkFolder(folder: string): void {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw usageError(`Cannot copy ${JSON.stringify(folder)}: it is not a folder`);
}

/** All of it, or a failure: a command must not work on a part that it takes for the whole. */
export async function copyIn(context: Context, vm: Vm, folder: string): Promise<Copied> {
  const { baseline, refused } = await sendFolder(context, vm, folder, WORKSPACE, "copying in");
  if (refused.length === 0) return { folder, baseline };
  await tellRefused(context, refused);
  const what = counted(refused.length, "part");
  throw new Failure(
    "file_failed",
    `Cannot run the command: ${what} of ${JSON.stringify(folder)} not copied in`,
  );
}

/** False when not all of it came home; what did not is listed on stderr. After `signal` nothing is left half done. */
export async function copyOut(
  context: Context,
  vm: Vm,
  copied: Copied,
  deletes: boolean,
  signal: AbortSignal,
): Promise<boolean> {
  const progress = startProgress(context.powers, context.output);
  const links: string[] = [];
  let report: HomeReport;
  const { comeHome } = await import("./tree/come-home.ts");
  try {
    const entries = await fetchFolder(vm, WORKSPACE, (path) => links.push(path), signal);
    report = await comeHome(entries, copied.folder, copied.baseline, {
      deletes,
      progress: (count, bytes) => progress.update(`copying back: ${count} files, ${renderBytes(bytes)}`),
    });
  } catch (thrown) {
    if (thrown instanceof Failure)
      throw new Failure("file_failed", `Cannot copy back: ${thrown.message}`, { cause: thrown });
    throw thrown;
  } finally {
    progress.end();
  }
  await tellLeft(context, links);
  await tellProblems(context, report);
  if (report.kept.length > 0) {
    const why = deletes ? "changed here too" : "--delete removes them";
    await context.output.say(`kept here, though the command removed them (${why}):`);
    await listed(context, report.kept);
  }
  return report.conflicts.length === 0 && report.refused.length === 0;
}
