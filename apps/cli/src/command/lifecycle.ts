import type { Client, Vm } from "@capsem/sdk";
import type { Args } from "../args.ts";
import { toFailure } from "../cli-error.ts";
import { confirm, hasAnswerer } from "../confirm.ts";
import type { Context, Handler } from "../context.ts";
import { textOfFailure } from "../error-text.ts";
import { EXIT } from "../exit-code.ts";
import { findVm } from "../vm-name.ts";
import { whileStarting } from "../vm-start.ts";
import { checkName } from "./create.ts";

export const start = onEach(async (vm, context) =>
  whileStarting(context, await context.client(), vm.start()),
);
export const stop = onEach((vm) => vm.stop());
export const restart = onEach((vm) => vm.restart());
export const remove = onEach((vm) => vm.delete());
export const rename = onName((vm, name) => vm.rename(name));
export const persist = onName((vm, name) => vm.persist(name));

export const purge: Handler = async (context, args) => {
  const { output, json } = context;
  const client = await context.client();
  const all = args.flag("all");
  if (all && !args.flag("yes") && hasAnswerer(context) && !(await mayDeleteKept(context, client))) {
    await output.say("nothing was deleted");
    return EXIT.failed;
  }
  const deleted = await client.vms.purge({ all });
  if (json) await output.json({ deleted });
  else await output.print(deleted.map((id) => `${id}\n`).join(""));
  return 0;
};

/** True also where there is none to lose. */
async function mayDeleteKept(context: Context, client: Client): Promise<boolean> {
  const names = (await client.vms.list()).flatMap(({ name }) => (name === null ? [] : [name]));
  if (names.length === 0) return true;
  const more = names.length > NAMED_MAX ? ` and ${names.length - NAMED_MAX} more` : "";
  const named = `${names.slice(0, NAMED_MAX).join(", ")}${more}`;
  return await confirm(context, `delete kept VMs and their disks: ${named}?`);
}

const NAMED_MAX = 8;

/** One that fails does not keep the others; the first failure is the command's, when all were tried. */
function onEach(act: Act): Handler {
  return async (context, args) => {
    const done: string[] = [];
    const failures: unknown[] = [];
    for (const word of args.words) {
      try {
        done.push(await actOn(context, word, act));
        if (!context.json) await context.output.line(word);
      } catch (thrown) {
        failures.push(thrown);
        if (args.words.length > 1 && !context.json)
          await context.output.say(textOfFailure(toFailure(thrown), context.names));
      }
    }
    const [first] = failures;
    if (first !== undefined && (args.words.length === 1 || context.json)) throw first;
    if (context.json) await context.output.json({ ok: true, ids: done });
    return first === undefined ? 0 : 1;
  };
}

type Act = (vm: Vm, context: Context) => Promise<unknown>;

async function actOn(context: Context, word: string, act: Act): Promise<string> {
  const vm = await findVm(context, word);
  await act(vm, context);
  return vm.id;
}

function onName(act: (vm: Vm, name: string) => Promise<unknown>): Handler {
  return async ({ client, names, output, json }: Context, args: Args) => {
    const name = args.word(1);
    checkName(name);
    const info = await act(await findVm({ client, names }, args.word(0)), name);
    await (json ? output.json(info) : output.line(name));
    return 0;
  };
}
