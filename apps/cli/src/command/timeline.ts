import type { TimelineEntry } from "@capsem/api";
import { LAYERS } from "@capsem/api";
import type { Args } from "../args.ts";
import { usageError } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { findLedger } from "../ledger-name.ts";
import { ROWS_ASKED_MAX, ROWS_SHOWN } from "../limits.ts";
import { colorOf, paintOf } from "../paint.ts";
import type { Powers } from "../powers.ts";
import { type Cell, renderMoment, renderMs, renderTable } from "../render.ts";
import { sinceOf } from "../since.ts";
import { isAct, timelineText } from "../timeline-text.ts";

/** The newest entries, the last one at the end. */
export const timeline: Handler = async (context, args) => {
  const { limit = ROWS_SHOWN, ...since } = sinceOf(args, ROWS_ASKED_MAX);
  const layers = layersOf(args);
  const trace = args.text("trace");
  const id = await findLedger(context, args.word(0));
  const query = {
    ...since,
    newest: true,
    ...(layers === undefined ? {} : { layers }),
    ...(trace === undefined ? {} : { trace_id: trace }),
  };
  const vm = (await context.client()).vm(id);
  const entries: TimelineEntry[] = [];
  let isMore = false;
  for await (const page of vm.timeline({ ...query, limit }).pages()) {
    entries.push(...page.entries);
    isMore = page.next !== null;
  }
  entries.reverse();
  if (context.json) await context.output.json({ vm_id: id, entries, truncated: isMore });
  else await show(context, entries, isMore);
  return 0;
};

async function show({ output, powers }: Context, entries: readonly TimelineEntry[], isMore: boolean) {
  if (entries.length === 0) {
    await output.say("nothing is recorded that is asked for");
    return;
  }
  if (isMore) await output.say("there is more before this: --limit and --since choose");
  const rows = entries.map((entry) => rowOf(entry, powers));
  const head = ["TIME", "LAYER", "OUTCOME", "TOOK", "BY", "WHAT"];
  await output.print(renderTable(head, rows, powers.stdout.size()?.cols, paintOf(powers), ["WHAT"]));
}

function rowOf(entry: TimelineEntry, powers: Powers): Cell[] {
  // A rule that matched, and an ask, are no acts: their titles say all.
  const outcome = isAct(entry) ? (entry.outcome ?? "open") : "-";
  return [
    renderMoment(entry.time, powers),
    entry.layer,
    { text: outcome, color: colorOf(outcome) },
    renderMs(entry.duration_ms),
    entry.requester,
    timelineText(entry),
  ];
}

function layersOf(args: Args): string | undefined {
  const text = args.text("layers");
  const names: readonly string[] = LAYERS;
  for (const name of text?.split(",") ?? [])
    if (!names.includes(name))
      throw usageError(
        `Cannot use --layers ${JSON.stringify(text)}: they are ${names.join(", ")}, with a comma between them`,
      );
  return text;
}
