import { within } from "@capsem/base";
import { CapsemError, type Client, type Held } from "@capsem/sdk";
import { usageError } from "../cli-error.ts";
import { commandOf, jobOptionsOf, sizeOf } from "../command-words.ts";
import type { Handler } from "../context.ts";
import { EXIT, exitOfSignal } from "../exit-code.ts";
import { watchInterrupts } from "../interrupts.ts";
import { followJob } from "../job-follow.ts";
import { KILL_GRACE_MS } from "../limits.ts";
import { checkFolder, copyIn, copyOut } from "../workspace-copy.ts";

const SIGINT = 2;

/**
 * The VM is held by our connection: however we end, it is destroyed. Asking for its end as well makes it certain
 * that it is gone when we are.
 */
export const run: Handler = async (context, args) => {
  const command = commandOf(args, 0);
  if (command === null) throw usageError("Cannot run: the command is missing, see capsem help run");
  const folder = args.text("copy");
  if (folder === undefined && args.flag("copy-back"))
    throw usageError("Cannot use --copy-back without --copy DIR");
  if (args.flag("delete") && !args.flag("copy-back"))
    throw usageError("Cannot use --delete without --copy-back");
  if (folder !== undefined) checkFolder(folder);
  const options = jobOptionsOf(args, context.powers.env);
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
    held = await client.hold(size, { signal: killed.signal });
    const vm = client.vm(held.info.id);
    const copied =
      folder === undefined ? null : await untilKilled(copyIn(context, vm, folder), killed.signal);
    const forwardsStdin = !context.powers.stdin.isTerminal;
    const job = vm.stream({ ...command, ...options, stdin: forwardsStdin });
    onInterrupt = () => {
      job.signal(SIGINT).then(undefined, () => undefined);
    };
    const followed = await followJob(context, job, {
      forwardsStdin,
      timeoutSecs: options.timeout_secs,
      killed: killed.signal,
    });
    onInterrupt = () => killed.abort(exitOfSignal(SIGINT));
    if (killed.signal.aborted || copied === null || !args.flag("copy-back")) return followed.exitCode;
    const complete = await untilKilled(copyOut(context, vm, copied, args.flag("delete")), killed.signal);
    return complete ? followed.exitCode : EXIT.ours;
  } catch (thrown) {
    if (killed.signal.aborted) return Number(killed.signal.reason);
    throw await withReason(thrown, held);
  } finally {
    if (client !== null && held !== null) await destroy(client, held);
    unwatch();
  }
};

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
