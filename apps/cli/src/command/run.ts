import { Failure, within } from "@capsem/base";
import { CapsemError, type Client, type Held, type Vm } from "@capsem/sdk";
import { usageError } from "../cli-error.ts";
import { commandInput } from "../command-input.ts";
import { commandOf, jobOptionsOf } from "../command-words.ts";
import type { Context, Handler } from "../context.ts";
import { EXIT, exitOfSignal } from "../exit-code.ts";
import { watchInterrupts } from "../interrupts.ts";
import { followJob } from "../job-follow.ts";
import { checkJobSize, envBytesOf } from "../job-size.ts";
import { JOB_ENV_BYTES_MAX, KILL_GRACE_MS } from "../limits.ts";
import { sizeOf, withSizeLimits } from "../vm-size.ts";
import { whileStarting } from "../vm-start.ts";
import { type Copied, checkFolder, copyIn, copyOut } from "../workspace-copy.ts";

const SIGINT = 2;

/**
 * The VM is held by our connection: however we end, it is destroyed. Asking for its end as well makes it certain
 * that it is gone when we are.
 */
export const run: Handler = async (context, args) => {
  const command = commandOf(args, 0);
  if (command === null) throw usageError("Cannot use run: the command is missing, see capsem help run");
  const folder = args.text("copy");
  if (folder === undefined && args.flag("copy-back"))
    throw usageError("Cannot use --copy-back without --copy DIR");
  if (args.flag("delete") && !args.flag("copy-back"))
    throw usageError("Cannot use --delete without --copy-back");
  if (folder !== undefined) checkFolder(folder);
  const { env, ...others } = jobOptionsOf(args, context.powers.env);
  // Its VM has no other job, so that variables may be either's, and a VM takes more of them.
  const forVm = envBytesOf(env) > JOB_ENV_BYTES_MAX;
  const options = env === undefined || forVm ? others : { ...others, env };
  checkJobSize({ ...command, ...options });
  const size = sizeOf(args);

  const killed = new AbortController();
  let onInterrupt: () => void = () => killed.abort(exitOfSignal(SIGINT));
  const unwatch = watchInterrupts(context.powers, {
    interrupt: () => onInterrupt(),
    kill: (exitCode) => killed.abort(exitCode),
  });
  let held: Held | null = null;
  let client: Client | null = null;
  try {
    client = await untilKilled(context.client(), killed.signal);
    const request = { ...size, ...(env === undefined || !forVm ? {} : { env }) };
    const holding = whileStarting(context, client, client.hold(request, { signal: killed.signal }));
    held = await withSizeLimits(client, size, holding);
    const vm = client.vm(held.info.id);
    const copied =
      folder === undefined ? null : await untilKilled(copyIn(context, vm, folder), killed.signal);
    const input = await commandInput(context.powers.stdin);
    const job = vm.stream({ ...command, ...options, stdin: input !== null });
    onInterrupt = () => {
      if (context.isHeld()) killed.abort(exitOfSignal(SIGINT));
      else job.signal(SIGINT).then(undefined, () => undefined);
    };
    const followed = await followJob(context, job, {
      input,
      timeoutSecs: options.timeout_secs,
      killed: killed.signal,
    });
    onInterrupt = () => killed.abort(exitOfSignal(SIGINT));
    if (killed.signal.aborted || copied === null || !args.flag("copy-back")) return followed.exitCode;
    return await bringHome(context, vm, copied, args.flag("delete"), followed.exitCode, killed.signal);
  } catch (thrown) {
    if (killed.signal.aborted) return Number(killed.signal.reason);
    throw await withReason(thrown, held);
  } finally {
    if (client !== null && held !== null) await destroy(client, held);
    unwatch();
  }
};

/** What did not come home is listed; it makes an exit code only where the command's own says nothing. */
async function bringHome(
  context: Context,
  vm: Vm,
  copied: Copied,
  deletes: boolean,
  exitCode: number,
  killed: AbortSignal,
): Promise<number> {
  try {
    const complete = await copyOut(context, vm, copied, deletes, killed);
    return complete || exitCode !== EXIT.ok ? exitCode : EXIT.ours;
  } catch (thrown) {
    if (exitCode === EXIT.ok || killed.aborted || !(thrown instanceof Failure)) throw thrown;
    await context.output.say(thrown.message);
    return exitCode;
  }
}

/** Rejects when the user wants the end; what was waited for is left behind and dies with the program. */
async function untilKilled<T>(work: Promise<T>, killed: AbortSignal): Promise<T> {
  return await within(
    work,
    2_147_483_647,
    () => new CapsemError("timeout", "Cannot wait any longer"),
    killed,
  );
}

/** A lost VM says itself why, better than the call that it broke. */
async function withReason(thrown: unknown, held: Held | null): Promise<unknown> {
  const broken =
    thrown instanceof CapsemError && (thrown.kind === "vm_gone" || thrown.kind === "unavailable");
  if (!broken || held === null) return thrown;
  const end = await within(held.gone, KILL_GRACE_MS).then(
    (gone) => gone.reason,
    () => null,
  );
  return end === null ? thrown : new CapsemError("vm_gone", `Cannot finish run: the VM ended (${end})`);
}

async function destroy(client: Client, held: Held): Promise<void> {
  const end = async () => {
    await client.vm(held.info.id).delete();
    await held.gone;
  };
  // The dropped connection destroys the VM also where asking did not.
  await within(end(), KILL_GRACE_MS).then(undefined, () => undefined);
  held.drop();
}
