import type { AskInfo } from "@capsem/api";
import { findAsk } from "../ask-id.ts";
import { placeOf, shortId, timeLeft } from "../ask-text.ts";
import type { Context, Handler } from "../context.ts";
import { colorOf, paintOf } from "../paint.ts";
import { type Cell, renderLocal, renderTable } from "../render.ts";

const SCOPES = ["once", "vm", "always"] as const;

export const list: Handler = async ({ client, output, powers, json }, args) => {
  const all = args.flag("all");
  const asks = await (await client()).asks.list(all ? {} : { state: "pending" });
  if (json) await output.json({ asks });
  else if (args.flag("names")) await output.print(asks.map(({ id }) => `${shortId(id)}\n`).join(""));
  else if (asks.length === 0) await output.say(all ? "no call was asked about" : "no call waits");
  else {
    const now = powers.now();
    const head = ["ID", "STATE", "VM", "WHAT", "RULE", "BY"];
    const rows = asks.map((ask) => rowOf(ask, now));
    await output.print(renderTable(head, rows, powers.stdout.size()?.cols, paintOf(powers)));
  }
  return 0;
};

function rowOf(ask: AskInfo, nowMs: number): Cell[] {
  const state =
    ask.state === "pending" ? timeLeft(ask, nowMs) : `${ask.state} ${renderLocal(ask.resolved_at)}`;
  return [
    { text: shortId(ask.id), color: "bold" },
    { text: state, color: colorOf(ask.state) },
    placeOf(ask),
    ask.title,
    ask.rule_id,
    ask.client ?? ask.requester,
  ];
}

export const approve: Handler = async (context, args) => {
  const scope = args.choice("scope", SCOPES);
  return await resolve(context, args.word(0), {
    approve: true,
    ...(scope === undefined ? {} : { scope }),
    ...noteOf(args.text("note")),
  });
};

export const deny: Handler = async (context, args) =>
  await resolve(context, args.word(0), { approve: false, ...noteOf(args.text("note")) });

function noteOf(note: string | undefined): { note?: string } {
  return note === undefined ? {} : { note };
}

async function resolve(
  { client, output, json }: Context,
  word: string,
  resolution: { approve: boolean; scope?: (typeof SCOPES)[number]; note?: string },
): Promise<number> {
  const service = await client();
  const found = await findAsk(service, word);
  const ask = await service.asks.resolve(found.id, resolution);
  if (json) await output.json(ask);
  else {
    await output.line(resolvedText(ask));
    const waited = !("is_held" in found) || found.is_held;
    if (ask.state === "approved" && !waited)
      await output.say("no call waits for it: the same call, made again within ten minutes, may go on");
  }
  return 0;
}

export function resolvedText(ask: AskInfo): string {
  const scope = { once: "this once", vm: "in this VM", always: "from now on: a rule of yours allows it" };
  const how = ask.scope === null ? "" : `, ${scope[ask.scope]}`;
  const who = ask.resolver === null ? "" : ` (by ${ask.resolver})`;
  const note = ask.note === null ? "" : `: ${ask.note}`;
  return `${ask.state} ${shortId(ask.id)}, ${ask.title} in ${placeOf(ask)}${how}${who}${note}`;
}
