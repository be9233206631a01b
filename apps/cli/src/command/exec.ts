import { usageError } from "../cli-error.ts";
import { commandInput } from "../command-input.ts";
import { commandOf, jobOptionsOf } from "../command-words.ts";
import type { Handler } from "../context.ts";
import { exitOfSignal } from "../exit-code.ts";
import { watchInterrupts } from "../interrupts.ts";
import { followJob } from "../job-follow.ts";
import { checkJobSize } from "../job-size.ts";
import { findVm } from "../vm-name.ts";

const SIGINT = 2;

export const exec: Handler = async (context, args) => {
  const command = commandOf(args, 1);
  if (command === null) throw usageError("Cannot use exec: the command is missing, see capsem help exec");
  const options = jobOptionsOf(args, context.powers.env);
  checkJobSize({ ...command, ...options });
  const vm = await findVm(context, args.word(0));
  const input = await commandInput(context.powers.stdin);
  const job = vm.stream({ ...command, ...options, stdin: input !== null });
  const killed = new AbortController();
  const unwatch = watchInterrupts(context.powers, {
    interrupt: () => {
      if (context.isHeld()) killed.abort(exitOfSignal(SIGINT));
      else job.signal(SIGINT).then(undefined, () => undefined);
    },
    kill: (exitCode) => killed.abort(exitCode),
  });
  try {
    const timeoutSecs = options.timeout_secs;
    const followed = await followJob(context, job, { input, timeoutSecs, killed: killed.signal });
    return followed.exitCode;
  } finally {
    unwatch();
  }
};
