import { CapsemError } from "@capsem/sdk";
import { usageError } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { findLedger } from "../ledger-name.ts";
import { POLICY_TEXT_BYTES_MAX } from "../limits.ts";
import { colorOf, paintOf } from "../paint.ts";
import { counted, renderLocal, renderTable } from "../render.ts";
import { eventOf } from "../rule-event.ts";
import { shellWord } from "../shell-word.ts";
import { sinceText } from "../since.ts";
import { readText } from "../text-input.ts";
import { findVm } from "../vm-name.ts";

/** What would be decided; the exit code says only whether that could be found out. */
export const evaluate: Handler = async (context, args) => {
  const { client, output, json } = context;
  const event = await eventOf(context, args);
  const rules = await textOf(context, args.text("rules"));
  const name = args.text("vm");
  const vmId = name === undefined ? undefined : await idOf(context, name);
  const found = await (await client()).rules.evaluate({
    event,
    ...(vmId === undefined ? {} : { vm_id: vmId }),
    ...(rules === undefined ? {} : { rules }),
  });
  if (json) await output.json(found);
  else await output.line(found.text);
  return 0;
};

export const replay: Handler = async (context, args) => {
  const { client, output, powers, json } = context;
  const name = args.text("vm");
  if (name === undefined) throw usageError("Cannot use rules replay: --vm VM is needed");
  const since = sinceText(args);
  const rules = await textOf(context, args.words[0]);
  const id = await findLedger(context, name);
  const found = await (await client()).rules.replay({
    vm_id: id,
    ...(rules === undefined ? {} : { rules }),
    ...(since === undefined ? {} : { since }),
  });
  if (json) {
    await output.json(found);
    return 0;
  }
  const { events, same, different, undecidable } = found;
  await output.line(
    `${counted(events, "event")}: ${same} decided alike, ${different.length} otherwise, ${undecidable.length} undecidable`,
  );
  const columns = powers.stdout.size()?.cols;
  const paint = paintOf(powers);
  if (different.length > 0) {
    const rows = [...different]
      .reverse()
      .map(({ time, title, was, now }) => [
        renderLocal(time),
        { text: was.action, color: colorOf(was.action) },
        { text: now.action, color: colorOf(now.action) },
        now.rule_id,
        title,
      ]);
    await output.print(`\n${renderTable(["TIME", "WAS", "NOW", "BY RULE", "WHAT"], rows, columns, paint)}`);
  }
  if (undecidable.length > 0) {
    const rows = [...undecidable].reverse().map(({ time, title, why }) => [renderLocal(time), why, title]);
    await output.print(`\n${renderTable(["TIME", "UNDECIDABLE BECAUSE", "WHAT"], rows, columns, paint)}`);
  }
  if (found.truncated) await output.say("more differ than are listed: --since chooses");
  return 0;
};

/** Rules are often tried before there is the VM that they are for. */
async function idOf(context: Context, name: string): Promise<string> {
  try {
    return (await findVm(context, name)).id;
  } catch (thrown) {
    if (!(thrown instanceof CapsemError && thrown.kind === "vm_not_found")) throw thrown;
    const instead = `--field ${shellWord(`vm.name=${name}`)} in place of --vm says the name`;
    const text = `${thrown.message}; of one that is still to be made, ${instead}`;
    throw new CapsemError("vm_not_found", text, { status: 404, cause: thrown });
  }
}

async function textOf({ powers }: Context, path: string | undefined): Promise<string | undefined> {
  return path === undefined ? undefined : await readText(powers, path, POLICY_TEXT_BYTES_MAX);
}
