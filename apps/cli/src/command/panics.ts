import type { Handler } from "../context.ts";
import { PLAIN_COLUMNS } from "../limits.ts";
import { printable, renderTable, renderTime } from "../render.ts";
import { sinceOf } from "../since.ts";

export const panics: Handler = async ({ client, output, powers, json }, args) => {
  const query = sinceOf(args);
  const found = await (await client()).operation("panics")({ query });
  if (json) {
    await output.json(found);
    return 0;
  }
  const rows = found.panics.map((each) => [
    renderTime(each.time),
    each.process,
    String(each.pid),
    printable(each.message.split("\n")[0] ?? ""),
  ]);
  if (rows.length === 0) await output.say("no panics");
  else {
    const columns = powers.stdout.size()?.cols ?? 2 * PLAIN_COLUMNS;
    await output.print(renderTable(["TIME", "PROCESS", "PID", "MESSAGE"], rows, columns));
  }
  if (found.truncated)
    await output.say("there are more: --limit and --since choose, --json has their frames");
  return 0;
};
