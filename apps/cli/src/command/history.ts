import type { HistoryEntry } from "@capsem/api";
import type { Handler } from "../context.ts";
import { findLedger } from "../ledger-name.ts";
import { ROWS_ASKED_MAX, ROWS_SHOWN } from "../limits.ts";
import { colorOf, paintOf } from "../paint.ts";
import type { Powers } from "../powers.ts";
import { type Cell, renderMoment, renderMs, renderTable } from "../render.ts";

/** As shells show it: the last command at the end. */
export const history: Handler = async (context, args) => {
  const { output, powers, json } = context;
  const limit = args.number("limit", 1, ROWS_ASKED_MAX, 1) ?? ROWS_SHOWN;
  const search = args.text("search");
  const id = await findLedger(context, args.word(0));
  const vm = (await context.client()).vm(id);
  const entries: HistoryEntry[] = [];
  let total = 0;
  for await (const page of vm.history({ limit, ...(search === undefined ? {} : { search }) }).pages()) {
    entries.push(...page.entries);
    total = page.total;
  }
  entries.reverse();
  if (json) await output.json({ vm_id: id, entries, total });
  else if (entries.length === 0)
    await output.say(
      search === undefined ? "no command was run" : `no command has ${JSON.stringify(search)}`,
    );
  else {
    if (total > entries.length)
      await output.say(`${total - entries.length} more before this: --limit and --search choose`);
    const rows = entries.map((entry) => rowOf(entry, powers));
    const head = ["TIME", "ENDED", "TOOK", "COMMAND"];
    await output.print(renderTable(head, rows, powers.stdout.size()?.cols, paintOf(powers)));
  }
  return 0;
};

function rowOf(entry: HistoryEntry, powers: Powers): Cell[] {
  const { signal, exit_code: exit } = entry;
  const code = signal === null ? (exit === null ? "" : `exit ${exit}`) : `signal ${signal}`;
  const isDone = entry.outcome === "done" && code !== "";
  const text = isDone ? code : (entry.outcome ?? "open");
  const color = isDone ? (exit === 0 ? "green" : "red") : colorOf(text);
  const user = entry.user === "root" ? "# " : "";
  return [
    renderMoment(entry.time, powers),
    { text, color },
    renderMs(entry.duration_ms),
    `${user}${entry.command}`,
  ];
}
