import { statSync } from "node:fs";
import { Failure } from "@capsem/base";
import type { Vm } from "@capsem/sdk";
import { usageError } from "./cli-error.ts";
import type { Context } from "./context.ts";
import { startProgress } from "./progress.ts";
import { printable, renderBytes } from "./render.ts";
import type { Baseline } from "./tree/baseline.ts";
import type { HomeReport } from "./tree/come-home.ts";
import type { UnpackReport } from "./tree/unpack.ts";

const WORKSPACE = "/workspace";
/** More than these of one sort are counted, not listed. */
const LISTED_MAX = 20;

export interface Copied {
  readonly folder: string;
  readonly baseline: Baseline;
}

export function checkFolder(folder: string): void {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw usageError(`Cannot copy ${JSON.stringify(folder)}: it is not a folder`);
}

export async function copyIn(context: Context, vm: Vm, folder: string): Promise<Copied> {
  const progress = startProgress(context.powers, context.output);
  const warnings: string[] = [];
  const { packTree } = await import("./tree/pack.ts");
  const { tar, baseline } = packTree(folder, {
    warn: (text) => warnings.push(text),
    progress: (entries, bytes) => progress.update(`copying in: ${entries} files, ${renderBytes(bytes)}`),
  });
  try {
    await vm.trees.write(WORKSPACE, tar);
  } finally {
    progress.end();
  }
  for (const warning of warnings) await context.output.say(printable(warning));
  return { folder, baseline };
}

/** False when not all of it came home; what did not is listed on stderr. */
export async function copyOut(context: Context, vm: Vm, copied: Copied, deletes: boolean): Promise<boolean> {
  const progress = startProgress(context.powers, context.output);
  let report: HomeReport;
  const { comeHome } = await import("./tree/come-home.ts");
  try {
    report = await comeHome(await vm.trees.read(WORKSPACE), copied.folder, copied.baseline, {
      deletes,
      progress: (entries, bytes) => progress.update(`copying back: ${entries} files, ${renderBytes(bytes)}`),
    });
  } catch (thrown) {
    if (thrown instanceof Failure)
      throw new Failure("file_failed", `Cannot copy back: ${thrown.message}`, { cause: thrown });
    throw thrown;
  } finally {
    progress.end();
  }
  await tellProblems(context, report);
  if (report.kept.length > 0) {
    const why = deletes ? "changed here too" : "--delete removes them";
    await context.output.say(`kept here, though the command removed them (${why}):`);
    await list(context, report.kept);
  }
  return report.conflicts.length === 0 && report.refused.length === 0;
}

export async function tellProblems(context: Context, report: UnpackReport): Promise<void> {
  if (report.conflicts.length > 0) {
    await context.output.say("changed on both sides; yours is kept, the VM's is beside it:");
    await list(
      context,
      report.conflicts.map(({ path, beside }) => `${path} -> ${beside}`),
    );
  }
  if (report.refused.length > 0) {
    await context.output.say("not copied:");
    await list(
      context,
      report.refused.map(({ path, reason }) => `${path}: ${reason}`),
    );
  }
}

async function list({ output }: Context, lines: readonly string[]): Promise<void> {
  for (const line of lines.slice(0, LISTED_MAX)) await output.error(`  ${printable(line)}\n`);
  if (lines.length > LISTED_MAX) await output.error(`  and ${lines.length - LISTED_MAX} more\n`);
}
