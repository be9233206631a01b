import { assert, ignore, within } from "@capsem/base";
import { DESCRIPTOR } from "./device-layout.ts";
import type { Hypervisor } from "./hypervisor.ts";
import { MIGRATION_BYTES_PER_SECOND_MAX } from "./limits.ts";
import { migrate } from "./migration.ts";

export async function resume({ qmp }: Hypervisor): Promise<void> {
  await qmp.call("cont");
}

export async function pause({ qmp }: Hypervisor): Promise<void> {
  await qmp.call("stop");
}

/** Loads the golden's device state into a fork. The VM is paused after it. */
export async function restore({ qmp, options }: Hypervisor, timeoutMs: number): Promise<void> {
  assert(options.kind === "fork", "only a fork is restored");
  await migrate(qmp, "paused", timeoutMs, async () => {
    await qmp.call("migrate-incoming", { uri: `fd:${DESCRIPTOR.state}` });
  });
}

/**
 * Writes the device state of a quiet guest; its memory is in the memory descriptor already. QEMU is gone
 * after it, in order, so that nobody writes to that memory any more.
 */
export async function saveState(hypervisor: Hypervisor, timeoutMs: number): Promise<void> {
  const { qmp, options } = hypervisor;
  const { sendDescriptors, descriptors } = options;
  assert(options.kind === "golden", "only a golden is saved");
  assert(sendDescriptors !== undefined && descriptors.state !== undefined, "saving needs sendDescriptors");
  const state = descriptors.state;
  await pause(hypervisor);
  await migrate(qmp, "postmigrate", timeoutMs, async () => {
    const bandwidth = MIGRATION_BYTES_PER_SECOND_MAX;
    await qmp.call("migrate-set-parameters", { "max-bandwidth": bandwidth, "downtime-limit": 60_000 });
    // An outgoing migration takes a name, not a number: the descriptor travels with `getfd`.
    await qmp.callWith("getfd", { fdname: "state" }, (socketFd, bytes) =>
      sendDescriptors(socketFd, bytes, [state]),
    );
    await qmp.call("migrate", { uri: "fd:state" });
  });
  await quit(hypervisor, timeoutMs);
}

/** Ends QEMU without asking the guest. Resolves when it is gone; kills it at the time limit. */
export async function quit(hypervisor: Hypervisor, timeoutMs: number): Promise<void> {
  // The answer may be lost in the end that it announces; the end itself is what counts.
  if (!hypervisor.qmp.isOver) ignore(hypervisor.qmp.call("quit", {}, timeoutMs));
  try {
    await within(hypervisor.ended, timeoutMs);
  } catch {
    hypervisor.kill();
    await hypervisor.ended;
  }
}
