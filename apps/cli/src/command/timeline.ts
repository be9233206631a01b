import type { TimelineEntry } from "@capsem/api";
import { LAYERS } from "@capsem/api";
import type { Args } from "../args.ts";
import { usageError } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { findLedger } from "../ledger-name.ts";
import { ROWS_ASKED_MAX, ROWS_SHOWN } from "../limits.ts";
import { colorOf, paintOf } from "../paint.ts";
import { type Cell, renderLocal, renderMs, renderTable } from "../render.ts";
import { sinceOf } from "../since.ts";

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
  const head = ["TIME", "LAYER", "OUTCOME", "TOOK", "WHAT"];
  await output.print(renderTable(head, entries.map(rowOf), powers.stdout.size()?.cols, paintOf(powers)));
}

function rowOf(entry: TimelineEntry): Cell[] {
  // A rule that matched, and an ask, are no acts: their titles say all.
  const isAct = entry.layer !== "rule" && entry.layer !== "ask";
  const outcome = isAct ? (entry.outcome ?? "open") : "-";
  const isPlain = !isAct || entry.decision === "allow" || entry.rule_id === null;
  const rule = isPlain ? "" : `  [${entry.decision} by ${entry.rule_id}]`;
  return [
    renderLocal(entry.time),
    entry.layer,
    { text: outcome, color: colorOf(outcome) },
    renderMs(entry.duration_ms),
    `${entry.title}${detailText(entry)}${rule}`,
  ];
}

/** What a person looks for: how it ended, how much it was. */
function detailText({ details }: TimelineEntry): string {
  const { exit_code: exit, bytes } = details;
  const parts = [
    typeof exit === "number" && exit !== 0 ? `exit ${exit}` : "",
    typeof bytes === "number" ? `${bytes} bytes` : "",
  ].filter((part) => part !== "");
  return parts.length === 0 ? "" : `  (${parts.join(", ")})`;
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
