import { truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type BuildContext, runStep, toolEnv } from "./build-context.ts";
import { DISK_BYTES, STEP_TIMEOUT_MS } from "./limits.ts";
import { BUILD_EPOCH_S } from "./recipe.ts";

const DISK_UUID = "ca95e300-0000-4000-8000-000000000003";
const DISK_HASH_SEED = "ca95e300-0000-4000-8000-000000000004";

/** The upper and the work folder of the workload root: made here, they cost no new disk 10 ms at its first mount. */
const WORKLOAD_FOLDERS = ["u", "w"] as const;

/**
 * The empty writable disk that every VM's own disk is laid over. With a journal: without one a killed VM lost
 * all that it had synced. `discard` on a file marks the inode tables as zeroed, so that the guest does not
 * write a gigabyte of zeros after its first mount.
 */
export async function makePristineDisk(
  context: Pick<BuildContext, "powers" | "signal" | "scratchDir" | "buildDir">,
): Promise<void> {
  const env = toolEnv(context.powers.env, { E2FSPROGS_FAKE_TIME: String(BUILD_EPOCH_S) });
  const rawPath = join(context.scratchDir, "pristine.raw");
  await writeFile(rawPath, "");
  await truncate(rawPath, DISK_BYTES);
  await runStep(context, {
    program: "mkfs.ext4",
    args: [
      ...["-q", "-F", "-b", "4096", "-m", "0", "-i", "65536", "-J", "size=64", "-O", "^resize_inode"],
      ...["-U", DISK_UUID, "-E"],
      `discard,lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0,hash_seed=${DISK_HASH_SEED}`,
      rawPath,
    ],
    env,
    timeoutMs: STEP_TIMEOUT_MS,
    purpose: "make the empty disk",
  });
  const commandsPath = join(context.scratchDir, "pristine.commands");
  await writeFile(commandsPath, WORKLOAD_FOLDERS.map((name) => `mkdir ${name}\n`).join(""));
  await runStep(context, {
    program: "debugfs",
    args: ["-w", "-f", commandsPath, rawPath],
    env,
    timeoutMs: STEP_TIMEOUT_MS,
    purpose: "make the empty disk",
  });
  await runStep(context, {
    program: "qemu-img",
    args: ["convert", "-q", "-f", "raw", "-O", "qcow2", rawPath, join(context.buildDir, "pristine.qcow2")],
    timeoutMs: STEP_TIMEOUT_MS,
    purpose: "make the empty disk",
  });
}
