import type { McpPinInfo } from "@capsem/api";
import { CapsemError } from "@capsem/sdk";
import type { Args } from "../args.ts";
import { usageError } from "../cli-error.ts";
import { confirm, hasAnswerer } from "../confirm.ts";
import type { Context, Handler } from "../context.ts";
import { differenceText, pinCell } from "../mcp-text.ts";
import { paintOf } from "../paint.ts";
import { type Cell, counted, renderLocal, renderTable } from "../render.ts";

export const list: Handler = async ({ client, output, powers, json }, args) => {
  const server = args.word(0);
  const pins = await (await client()).mcp.pins(server);
  if (json) await output.json({ server_id: server, pins });
  else if (pins.length === 0)
    await output.say(`no tool of ${server} has been seen; look at it: capsem mcp refresh ${server}`);
  else {
    const rows = pins.map((pin): Cell[] => [
      pin.tool,
      pinCell(pin.pin),
      renderLocal(pin.approved_at),
      (pin.approved_hash ?? "-").slice(0, 12),
      (pin.current_hash ?? "-").slice(0, 12),
    ]);
    const head = ["TOOL", "DEFINITION", "APPROVED", "APPROVED HASH", "HASH NOW"];
    const paint = paintOf(powers);
    await output.print(renderTable(head, rows, powers.stdout.size()?.cols, paint, ["TOOL"]));
    const different = pins.filter(isOpen);
    for (const pin of different) await output.print(`\n${differenceText(pin, paint)}`);
    if (different.length > 0) await output.say(`approve them: capsem mcp approve ${server} [TOOL]`);
  }
  return 0;
};

export const approve: Handler = async (context, args) => {
  const { output, powers, json } = context;
  const server = args.word(0);
  const { mcp } = await context.client();
  const open = openOf(await mcp.pins(server), server, args.words[1]);
  if (open.length === 0) {
    if (json) await output.json({ server_id: server, pins: [] });
    else await output.line(`nothing of ${server} waits for approval`);
    return 0;
  }
  const paint = paintOf(powers);
  if (!json) for (const pin of open) await output.print(`${differenceText(pin, paint)}\n`);
  if (!(await isMeant(context, args, open.length))) {
    await output.say("nothing was approved");
    return 1;
  }
  const approved: McpPinInfo[] = [];
  for (const { tool, current_hash: hash } of open) {
    // What was shown and nothing else: a definition that has changed meanwhile is refused.
    const pins = await mcp.approvePins(server, { tool, ...(hash === null ? {} : { hash }) });
    approved.push(...pins.filter((pin) => pin.tool === tool));
    if (!json) await output.line(`${server} ${tool}: approved`);
  }
  if (json) await output.json({ server_id: server, pins: approved });
  return 0;
};

function isOpen({ pin }: McpPinInfo): boolean {
  return pin !== "pinned";
}

function openOf(pins: readonly McpPinInfo[], server: string, tool: string | undefined): McpPinInfo[] {
  if (tool === undefined) return pins.filter(isOpen);
  const found = pins.filter((pin) => pin.tool === tool);
  if (found.length > 0) return found.filter(isOpen);
  const text = `Cannot find tool ${JSON.stringify(tool)} of server ${JSON.stringify(server)}`;
  throw new CapsemError("mcp_tool_not_found", text, { status: 404 });
}

async function isMeant(context: Context, args: Args, count: number): Promise<boolean> {
  if (args.flag("yes")) return true;
  if (context.json || !hasAnswerer(context))
    throw usageError(
      "Cannot approve without a person who looks: add --yes where you have seen the difference",
    );
  return await confirm(context, `approve ${counted(count, "definition")}?`);
}
