import type { SecurityEntry } from "@capsem/api";
import type { Context, Handler } from "../context.ts";
import { findLedger } from "../ledger-name.ts";
import { ROWS_ASKED_MAX, ROWS_SHOWN } from "../limits.ts";
import { colorOf, paintOf } from "../paint.ts";
import { printable, renderLocal } from "../render.ts";
import { sinceOf } from "../since.ts";

const VALUE_CHARS_MAX = 120;

/** The last decisions, the newest at the end, with the fields that rules saw: what one needs to write a rule. */
export const events: Handler = async (context, args) => {
  const { limit = ROWS_SHOWN, ...since } = sinceOf(args, ROWS_ASKED_MAX);
  const action = args.choice("action", ["allow", "ask", "block"]);
  const [type, rule] = [args.text("type"), args.text("rule")];
  const id = await findLedger(context, args.word(0));
  const query = {
    ...since,
    ...{ limit },
    ...(action === undefined ? {} : { action }),
    ...(type === undefined ? {} : { type }),
    ...(rule === undefined ? {} : { rule_id: rule }),
  };
  const found: SecurityEntry[] = [];
  let isMore = false;
  for await (const page of (await context.client()).vm(id).securityEvents(query).pages()) {
    found.push(...page.events);
    isMore = page.next !== null;
  }
  found.reverse();
  if (context.json) await context.output.json({ vm_id: id, events: found, truncated: isMore });
  else if (found.length === 0) await context.output.say("nothing was decided that is asked for");
  else {
    if (isMore) await context.output.say("there is more before this: --limit, --since and --action choose");
    for (const entry of found) await show(context, entry);
  }
  return 0;
};

async function show({ output, powers }: Context, entry: SecurityEntry): Promise<void> {
  const paint = paintOf(powers);
  const color = colorOf(entry.action);
  const action = color === null ? entry.action : paint(entry.action, color);
  const reason = entry.reason === "" ? "" : `: ${printable(entry.reason)}`;
  const detection = entry.detection === "none" ? "" : ` [${printable(entry.detection)}]`;
  const head = `${renderLocal(entry.time)}  ${action}  ${paint(printable(entry.type), "bold")}  by ${printable(entry.rule_id)}${reason}${detection}`;
  const others = entry.matched.filter(({ rule_id: id }) => id !== entry.rule_id);
  const lines = [
    head,
    ...fieldsOf(entry).map(([key, value]) => `    ${printable(key)} = ${printable(short(value))}`),
    ...others.map(
      (each) => `    also matched ${printable(each.rule_id)}: ${each.action} at ${each.priority}`,
    ),
    ...(entry.is_redacted ? ["    secrets in it were replaced"] : []),
  ];
  await output.print(`${lines.join("\n")}\n`);
}

/** What every event of its type has says nothing of this one. */
function fieldsOf({ event }: SecurityEntry): [string, unknown][] {
  const inner = event.fields;
  const fields = typeof inner === "object" && inner !== null ? (inner as Record<string, unknown>) : event;
  return Object.entries(fields).filter(
    ([key, value]) =>
      key !== "event.type" &&
      !(key.endsWith(".valid") && value === true) &&
      !(key.endsWith(".truncated") && value === false),
  );
}

function short(value: unknown): string {
  const text = JSON.stringify(value) ?? "";
  return text.length <= VALUE_CHARS_MAX ? text : `${text.slice(0, VALUE_CHARS_MAX - 3)}...`;
}
