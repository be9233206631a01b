import type { AskInfo } from "@capsem/api";
import { findAsk } from "../ask-id.ts";
import { placeOf, shortId, timeLeft } from "../ask-text.ts";
import type { Context, Handler } from "../context.ts";
import { colorOf, paintOf } from "../paint.ts";
import type { Powers } from "../powers.ts";
import { type Cell, renderMoment, renderTable } from "../render.ts";

const SCOPES = ["once", "vm", "always"] as const;

export const list: Handler = async ({ client, output, powers, json }, args) => {
  const all = args.flag("all");
  const asks = await (await client()).asks.list(all ? {} : { state: "pending" });
  if (json) await output.json({ asks });
  else if (args.flag("names")) await output.print(asks.map(({ id }) => `${shortId(id)}\n`).join(""));
  else if (asks.length === 0) await output.say(all ? "no call was asked about" : "no call waits");
  else {
    const now = powers.now();
    const columns = powers.stdout.size()?.cols;
    const rows = asks.map((ask) => (all ? pastRow(ask, powers) : waitingRow(ask, now)));
    const head = all ? PAST_HEAD : WAITING_HEAD;
    await output.print(renderTable(head, rows, columns, paintOf(powers), SHRINKS));
  }
  return 0;
};

const WAITING_HEAD = ["ID", "STATE", "SCOPES", "VM", "WHAT", "RULE", "BY"];

function waitingRow(ask: AskInfo, nowMs: number): Cell[] {
  const { scopes, title, rule_id: rule, client, requester } = ask;
  return [...idAndState(ask, nowMs), scopes.join(", "), placeOf(ask), title, rule, client ?? requester];
}

const PAST_HEAD = ["ID", "STATE", "ENDED", "ANSWERED BY", "SCOPE", "NOTE", "WHAT", "VM", "RULE", "BY"];
const SHRINKS = ["ANSWERED BY", "NOTE", "WHAT", "VM", "RULE", "BY"];

function pastRow(ask: AskInfo, powers: Powers): Cell[] {
  return [
    ...idAndState(ask, powers.now()),
    renderMoment(ask.resolved_at, powers),
    ask.resolver ?? "-",
    ask.scope ?? "-",
    ask.note ?? "-",
    ask.title,
    placeOf(ask),
    ask.rule_id,
    ask.client ?? ask.requester,
  ];
}

/** An approval serves whoever comes again; one that nobody waits for is easily taken for one that somebody does. */
function idAndState(ask: AskInfo, nowMs: number): Cell[] {
  const { state, is_held: isHeld, is_used: isUsed } = ask;
  const waits = `${timeLeft(ask, nowMs)}${isHeld ? "" : ", no caller waits"}`;
  const text = state === "pending" ? waits : `${state}${isUsed ? ", used" : ""}`;
  return [
    { text: shortId(ask.id), color: "bold" },
    { text, color: colorOf(state) },
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
  const scope = {
    once: "this once",
    vm: "in this VM",
    always: "from now on: a rule of yours allows exactly this",
  };
  const how = ask.scope === null ? "" : `, ${scope[ask.scope]}`;
  const who = ask.resolver === null ? "" : ` (by ${ask.resolver})`;
  const note = ask.note === null ? "" : `: ${ask.note}`;
  return `${ask.state} ${shortId(ask.id)}, ${ask.title} in ${placeOf(ask)}${how}${who}${note}`;
}
