import type { Vm } from "@capsem/sdk";
import type { Args } from "../args.ts";
import { toFailure } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { textOfFailure } from "../error-text.ts";
import { findVm } from "../vm-name.ts";
import { checkName } from "./create.ts";

export const start = onEach((vm) => vm.start());
export const stop = onEach((vm) => vm.stop());
export const restart = onEach((vm) => vm.restart());
export const remove = onEach((vm) => vm.delete());
export const rename = onName((vm, name) => vm.rename(name));
export const persist = onName((vm, name) => vm.persist(name));

export const purge: Handler = async ({ client, output, json }, args) => {
  const deleted = await (await client()).vms.purge({ all: args.flag("all") });
  if (json) await output.json({ deleted });
  else await output.print(deleted.map((id) => `${id}\n`).join(""));
  return 0;
};

/** One that fails does not keep the others; the first failure is the command's, when all were tried. */
function onEach(act: (vm: Vm) => Promise<unknown>): Handler {
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

async function actOn(context: Context, word: string, act: (vm: Vm) => Promise<unknown>): Promise<string> {
  const vm = await findVm(context, word);
  await act(vm);
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
