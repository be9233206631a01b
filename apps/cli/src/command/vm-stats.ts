import type { VmStatsDetail } from "@capsem/api";
import type { Context } from "../context.ts";
import { findLedger } from "../ledger-name.ts";
import { counted, renderBytes, renderLocal, renderMs, renderPairs, renderTable } from "../render.ts";

/** Of one VM, alive or gone. */
export async function vmStats(context: Context, word: string): Promise<number> {
  const id = await findLedger(context, word);
  const found = await (await context.client()).vm(id).statsDetail();
  await (context.json ? context.output.json(found) : context.output.print(renderVmStats(found)));
  return 0;
}

export function renderVmStats(found: VmStatsDetail): string {
  const { decisions, exec, file, asks } = found;
  const outcomes = Object.entries(found.outcomes).map(([name, count]) => `${count} ${name}`);
  const pairs = renderPairs([
    ["vm", found.vm_id],
    ["recorded", `${found.rows} rows, ${renderBytes(found.bytes)}`],
    ["from", renderLocal(found.first_time)],
    ["to", renderLocal(found.last_time)],
    ["decided", `${decisions.allow} allowed, ${decisions.ask} asked, ${decisions.block} blocked`],
    ["ended", [...outcomes, ...(found.open === 0 ? [] : [`${found.open} open`])].join(", ") || "-"],
    ["asks", `${asks.made} made, ${asks.approved} approved, ${asks.denied} denied, ${asks.expired} expired`],
    [
      "commands",
      `${exec.count}, ${exec.failed} failed; output ${renderBytes(exec.stdout_bytes)}, errors ${renderBytes(exec.stderr_bytes)}`,
    ],
    [
      "times",
      exec.count === 0
        ? "-"
        : `median ${renderMs(exec.p50_ms)}, 99 % under ${renderMs(exec.p99_ms)}, longest ${renderMs(exec.max_ms)}`,
    ],
    [
      "files",
      `${file.imports} in (${renderBytes(file.bytes_in)}), ${file.exports} out (${renderBytes(file.bytes_out)})`,
    ],
    ["tools", toolsText(found)],
    ["by", found.requesters.map(({ requester, acts }) => `${requester} (${acts})`).join(", ") || "-"],
  ]);
  const types = found.types.map(({ type, ...each }) => [
    type,
    ...[each.allow, each.ask, each.block].map(String),
  ]);
  const rules = found.rules.map((each) => [
    each.rule_id,
    String(each.matched),
    String(each.won),
    each.detection,
    renderLocal(each.last_time),
  ]);
  const tools = found.tools_by_name.map((each) => [
    `${each.server} ${each.tool}`,
    ...[each.count, each.failed, each.refused].map(String),
    ...[each.p50_ms, each.max_ms].map((ms) => renderMs(each.max_ms === 0 ? null : ms)),
    `${renderBytes(each.bytes_sent)}, ${renderBytes(each.bytes_received)}`,
  ]);
  const toolHead = ["TOOL", "CALLS", "FAILED", "REFUSED", "MEDIAN", "LONGEST", "SENT, RECEIVED"];
  return [
    pairs,
    ...(tools.length === 0 ? [] : [renderTable(toolHead, tools)]),
    ...(types.length === 0 ? [] : [renderTable(["EVENT", "ALLOWED", "ASKED", "BLOCKED"], types)]),
    ...(rules.length === 0 ? [] : [renderTable(["RULE", "MATCHED", "DECIDED", "DETECTION", "LAST"], rules)]),
  ].join("\n");
}

function toolsText({ tools, tools_by_name: named }: VmStatsDetail): string {
  const sum = (of: (each: (typeof named)[number]) => number) =>
    named.reduce((all, each) => all + of(each), 0);
  return `${counted(tools, "call")}, ${sum((each) => each.failed)} failed, ${sum((each) => each.refused)} refused`;
}
