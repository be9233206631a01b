import type { Finding } from "@capsem/api";
import type { Handler } from "../context.ts";
import { PLAIN_COLUMNS } from "../limits.ts";
import { printable, renderTable, renderTime } from "../render.ts";
import { sinceOf } from "../since.ts";
import { findVm } from "../vm-name.ts";

export const triage: Handler = async (context, args) => {
  const { client, output, powers, json } = context;
  const since = sinceOf(args);
  const name = args.text("vm");
  const vmId = name === undefined ? undefined : (await findVm(context, name)).id;
  const query = vmId === undefined ? since : { ...since, vm_id: vmId };
  const found = await (await client()).operation("triage")({ query });
  if (json) {
    await output.json(found);
    return 0;
  }
  if (found.findings.length === 0) await output.say("nothing went wrong");
  else {
    const columns = powers.stdout.size()?.cols ?? 2 * PLAIN_COLUMNS;
    await output.print(renderFindings(found.findings, columns));
  }
  // Panics are files; the rest is in the service's memory and began with it.
  await output.say("failed VMs, errors and slow calls are those since the service started");
  if (found.truncated) await output.say("there is more: --limit and --since choose");
  return 0;
};

export function renderFindings(findings: readonly Finding[], columns: number): string {
  const rows = findings.map((each) => {
    const [detail = ""] = each.detail.split("\n");
    const what = [each.title, ...(detail === "" ? [] : [detail])].join(": ");
    return [each.kind, String(each.count), renderTime(each.time), each.vm_id ?? "-", printable(what)];
  });
  return renderTable(["KIND", "COUNT", "LAST", "VM", "WHAT"], rows, columns);
}
