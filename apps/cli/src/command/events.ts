import type { SecurityEntry } from "@capsem/api";
import type { Vm } from "@capsem/sdk";
import { CapsemError } from "@capsem/sdk";
import type { Args } from "../args.ts";
import type { Context, Handler } from "../context.ts";
import { EVENT_HEAD, eventRow, eventText } from "../event-text.ts";
import { findLedger } from "../ledger-name.ts";
import { ROWS_ASKED_MAX, ROWS_SHOWN } from "../limits.ts";
import { paintOf } from "../paint.ts";
import { renderTable } from "../render.ts";
import { sinceOf } from "../since.ts";
import { suggest } from "../suggest.ts";

/** The last decisions, the newest at the end, with the fields that rules saw: what one needs to write a rule. */
export const events: Handler = async (context, args) => {
  const { limit = ROWS_SHOWN, ...since } = sinceOf(args, ROWS_ASKED_MAX);
  const action = args.choice("action", ["allow", "ask", "block"]);
  const id = await findLedger(context, args.word(0));
  const vm = (await context.client()).vm(id);
  const query = {
    ...since,
    limit,
    ...(action === undefined ? {} : { action }),
    ...(await chosen(context, vm, args)),
  };
  const found: SecurityEntry[] = [];
  let isMore = false;
  for await (const page of vm.securityEvents(query).pages()) {
    found.push(...page.events);
    isMore = page.next !== null;
  }
  found.reverse();
  if (context.json) await context.output.json({ vm_id: id, events: found, truncated: isMore });
  else if (found.length === 0) await context.output.say("nothing was decided that is asked for");
  else await show(context, found, isMore, args.flag("full"));
  return 0;
};

async function show(
  { output, powers }: Context,
  found: readonly SecurityEntry[],
  isMore: boolean,
  isFull: boolean,
): Promise<void> {
  if (isMore) await output.say("there is more before this: --limit, --since and --action choose");
  const paint = paintOf(powers);
  if (isFull) for (const entry of found) await output.print(eventText(entry, paint));
  else {
    const rows = found.map((entry) => eventRow(entry, powers));
    await output.print(renderTable(EVENT_HEAD, rows, powers.stdout.size()?.cols, paint, ["FIELDS", "RULE"]));
  }
}

/** What is asked for must be something that there is, or a typing error would look like peace. */
async function chosen(
  context: Context,
  vm: Vm,
  args: Args,
): Promise<{ readonly type?: string; readonly rule_id?: string }> {
  const [type, rule] = [args.text("type"), args.text("rule")];
  if (type === undefined && rule === undefined) return {};
  const [inForce, counted] = await Promise.all([(await context.client()).rules.list(), vm.statsDetail()]);
  const types = [...Object.keys(inForce.posture), ...counted.types.map((each) => each.type)];
  // A rule that is gone has decided here; one that has not may be in force.
  const rules = [...counted.rules.map((each) => each.rule_id), ...inForce.rules.map((each) => each.id)];
  return {
    ...(type === undefined ? {} : { type: oneOf("event type", type, types) }),
    ...(rule === undefined ? {} : { rule_id: ruleOf(rule, rules) }),
  };
}

/** An id, or the name at its end. A posture is no rule, and decides. */
function ruleOf(word: string, ids: readonly string[]): string {
  if (ids.includes(word) || /^posture\.[a-z-]+$/.test(word)) return word;
  const named = [...new Set(ids.filter((id) => nameOf(id) === word))];
  if (named.length > 1)
    throw new CapsemError(
      "invalid_input",
      `Cannot tell rule ${JSON.stringify(word)}: it is ${named.join(" or ")}`,
    );
  return named[0] ?? oneOf("rule", word, word.includes(".") ? ids : ids.map(nameOf));
}

function nameOf(id: string): string {
  return id.slice(id.lastIndexOf(".") + 1);
}

function oneOf(what: string, word: string, known: readonly string[]): string {
  if (known.includes(word)) return word;
  const near = suggest(word, [...new Set(known)]);
  const hint = near === null ? "none here has this name" : `did you mean ${near}?`;
  throw new CapsemError("invalid_input", `Cannot find ${what} ${JSON.stringify(word)}: ${hint}`);
}
