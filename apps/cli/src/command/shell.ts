import { JOB_ID_PATTERN } from "@capsem/base";
import type { Job, Vm } from "@capsem/sdk";
import type { Args } from "../args.ts";
import { usageError } from "../cli-error.ts";
import { commandOf, jobOptionsOf } from "../command-words.ts";
import type { Context, Handler } from "../context.ts";
import { exitOfJob } from "../exit-code.ts";
import { checkJobSize } from "../job-size.ts";
import { followTerminal } from "../terminal.ts";
import { findVm } from "../vm-name.ts";

export const shell: Handler = async (context, args) => {
  if (context.json) throw usageError("Cannot use --json with shell: a terminal is no JSON");
  if (!context.powers.stdin.isTerminal || !context.powers.stdout.isTerminal)
    throw usageError("Cannot open shell: standard input and output must be a terminal, use exec");
  const vm = await findVm(context, args.word(0));
  const exit = await followTerminal(context, openJob(context, vm, args));
  return exitOfJob(exit);
};

function openJob(context: Context, vm: Vm, args: Args): Job {
  const id = args.text("job");
  if (id !== undefined) {
    if (!JOB_ID_PATTERN.test(id)) throw usageError(`Cannot use --job ${JSON.stringify(id)}: it is no job id`);
    return vm.attach(id, 0);
  }
  const size = context.powers.stdout.size() ?? { cols: 80, rows: 24 };
  const { env, ...options } = jobOptionsOf(args, context.powers.env);
  const term = context.powers.env.TERM;
  const command = commandOf(args, 1);
  const variables = { ...(term === undefined ? {} : { TERM: term }), ...env };
  checkJobSize({ ...command, env: variables });
  return vm.stream({
    ...command,
    ...options,
    env: variables,
    kind: "terminal",
    // Known before the first byte, so that a program never draws for another size.
    terminal: size,
  });
}
