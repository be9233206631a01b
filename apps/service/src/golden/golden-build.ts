import { mkdir, open, rm } from "node:fs/promises";
import { Failure, newId, within } from "@capsem/base";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { TIMES, VM_LIMITS } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { VmLogs } from "../log/vm-logs.ts";
import type { GoldenDraft, GoldenIdentity, Machinery } from "../machinery.ts";
import type { Powers } from "../powers.ts";
import type { StartsOwners } from "../trouble/owner-watch.ts";

const MIB = 1024 * 1024;

export interface GoldenParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly machinery: Machinery;
  readonly starter: StartsOwners;
  readonly log: ServiceLog;
}

/** Sealed memory and an open device state, both readable again and again; whoever holds it closes both. */
export interface LoadedGolden {
  readonly key: string;
  readonly memoryFd: number;
  readonly memoryBytes: number;
  readonly state: { readonly fd: number; close(): Promise<void> };
}

/** Boots, warms and saves one machine, until `signal`. On every path nothing is left of the machine itself. */
export async function buildGolden(
  parts: GoldenParts,
  identity: GoldenIdentity,
  key: string,
  signal: AbortSignal,
): Promise<LoadedGolden> {
  const id = newId("vm", parts.powers.random);
  const { folder, logs: logFolder } = vmFolder(parts.layout, id);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const logs = await VmLogs.open(logFolder);
  try {
    const draft = await parts.machinery.goldens.draft(key, identity);
    try {
      return await bootAndSave(parts, identity, key, id, draft, logs, signal);
    } catch (thrown) {
      await draft.abort();
      throw withTail(thrown, logs);
    }
  } finally {
    await logs.close();
    await rm(folder, { recursive: true, force: true });
  }
}

async function bootAndSave(
  parts: GoldenParts,
  identity: GoldenIdentity,
  key: string,
  id: string,
  draft: GoldenDraft,
  logs: VmLogs,
  signal: AbortSignal,
): Promise<LoadedGolden> {
  const { memory } = parts.machinery;
  const memoryBytes = identity.memoryMib * MIB;
  const memoryFd = memory.create(`capsem-golden-${key.slice(0, 16)}`, memoryBytes);
  try {
    await boot(parts, identity, id, draft, memoryFd, logs, signal);
    memory.seal(memoryFd);
    const state = await keep(parts, key, draft, memoryFd, memoryBytes);
    return { key, memoryFd, memoryBytes, state };
  } catch (thrown) {
    parts.machinery.closeDescriptor(memoryFd);
    throw thrown;
  }
}

async function boot(
  parts: GoldenParts,
  identity: GoldenIdentity,
  id: string,
  draft: GoldenDraft,
  memoryFd: number,
  logs: VmLogs,
  signal: AbortSignal,
): Promise<void> {
  const { image, accelerator, hypervisor, cpus, memoryMib } = identity;
  const { folder, processes, disk } = vmFolder(parts.layout, id);
  // The golden rehearses on a disk that is thrown away with its folder.
  await parts.machinery.createDisk(image.pristinePath, disk);
  const run = await parts.starter.start({
    plan: {
      kind: "golden",
      vm_id: id,
      cpus,
      memory_mib: memoryMib,
      accelerator: accelerator.name,
      qemu_binary: hypervisor.binary,
      folder,
      pool: false,
      disk_capacity_bytes: VM_LIMITS.diskCapacityBytes,
    },
    grants: {
      kernel: { path: image.kernelPath, flags: "r" },
      initrd: { path: image.initrdPath, flags: "r" },
      root: { path: image.rootPath, flags: "r" },
      agent: { path: image.agentPath, flags: "r" },
      disk: { path: disk, flags: "r+" },
      memory: { fd: memoryFd },
      state: { path: draft.statePath, flags: "w+" },
    },
    processesPath: processes,
    onLogLine: (line) => logs.take(line),
  });
  try {
    const late = () =>
      new Failure("boot_timeout", `Cannot build a golden: not saved within ${TIMES.goldenTimeoutMs} ms`);
    const said = await within(run.ready, TIMES.goldenTimeoutMs, late, signal);
    if (said.state !== "saved") {
      throw new Failure("internal", `Cannot build a golden: its owner says "${said.state}"`);
    }
    await within(run.gone, TIMES.stopTimeoutMs);
  } finally {
    // After an orderly end this finds nothing to do. Nobody may map the memory when it is sealed.
    await run.kill();
  }
}

/** Copies the golden into the store. Without room for it this service still forks from memory. */
async function keep(
  parts: GoldenParts,
  key: string,
  draft: GoldenDraft,
  memoryFd: number,
  memoryBytes: number,
): Promise<LoadedGolden["state"]> {
  const state = await open(draft.statePath, "r");
  try {
    const ram = await open(draft.ramPath, "w+", 0o600);
    try {
      await ram.truncate(memoryBytes);
      parts.machinery.memory.copy(memoryFd, ram.fd, memoryBytes);
      await ram.sync();
    } finally {
      await ram.close();
    }
    await draft.commit();
  } catch (thrown) {
    parts.log("warning", "golden not kept on disk", { key, cause: String(thrown) });
    await draft.abort();
  }
  return state;
}

function withTail(thrown: unknown, logs: VmLogs): unknown {
  if (!(thrown instanceof Failure)) return thrown;
  const detail = [thrown.detail, ...logs.tail(20)].filter((line) => line !== undefined).join("\n");
  return new Failure(thrown.kind, thrown.message, { cause: thrown, detail });
}
