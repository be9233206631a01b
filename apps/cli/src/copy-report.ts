import type { Context } from "./context.ts";
import { printable } from "./render.ts";

interface Refused {
  readonly path: string;
  readonly reason: string;
}

interface Problems {
  readonly conflicts: readonly { readonly path: string; readonly beside: string }[];
  readonly refused: readonly Refused[];
}

/** More than these of one sort are counted, not listed. */
const LISTED_MAX = 20;

export async function tellProblems(
  context: Pick<Context, "output">,
  { conflicts, refused }: Problems,
): Promise<void> {
  if (conflicts.length > 0) {
    await context.output.say("changed on both sides; yours is kept, the VM's is beside it:");
    await listed(
      context,
      conflicts.map(({ path, beside }) => `${path} -> ${beside}`),
    );
  }
  await tellRefused(context, refused);
}

export async function tellRefused(
  context: Pick<Context, "output">,
  refused: readonly Refused[],
): Promise<void> {
  if (refused.length === 0) return;
  await context.output.say("not copied:");
  await listed(
    context,
    refused.map(({ path, reason }) => `${path}: ${reason}`),
  );
}

/** Links, where each file was judged by itself. */
export async function tellLeft(context: Pick<Context, "output">, links: readonly string[]): Promise<void> {
  if (links.length === 0) return;
  await context.output.say(
    "links were left out, because a rule judges each file and a link has none of its own:",
  );
  await listed(context, links);
}

export async function listed({ output }: Pick<Context, "output">, lines: readonly string[]): Promise<void> {
  for (const line of lines.slice(0, LISTED_MAX)) await output.error(`  ${printable(line)}\n`);
  if (lines.length > LISTED_MAX) await output.error(`  and ${lines.length - LISTED_MAX} more\n`);
}
