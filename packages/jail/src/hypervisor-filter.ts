import { LAUNCH_SELF } from "@capsem/native";
import { assemble } from "./bpf.ts";
import { compileDenied } from "./compile.ts";
import { HYPERVISOR_DENIALS } from "./profile-hypervisor.ts";
import { isArch } from "./syscall-table.ts";

/** What the launcher installs before it becomes the hypervisor; null on a machine that we have no table of calls for. */
export function hypervisorFilter(arch: string): Uint8Array | null {
  if (!isArch(arch)) return null;
  return assemble(compileDenied(HYPERVISOR_DENIALS, arch, { selfPid: LAUNCH_SELF }));
}
