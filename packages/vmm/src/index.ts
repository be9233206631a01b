export { type Accelerator, cpuModelFor, planCommandLine, type StartKind } from "./command-line.ts";
export { HYPERVISOR_ENVIRONMENT, LANES, LAYOUT_VERSION, type Lane, MACHINE } from "./device-layout.ts";
export { createDisk, diskAllocatedBytes } from "./disk.ts";
export { joinDisk } from "./disk-join.ts";
export type { VmmFailureKind } from "./error.ts";
export { findQemu, type Qemu } from "./find-qemu.ts";
export { GOLDEN_KEY_PATTERN, type GoldenIdentity, goldenKey } from "./golden-key.ts";
export {
  type Golden,
  type GoldenDraft,
  type GoldenLimits,
  type GoldenStore,
  type GoldenStorePowers,
  openGoldenStore,
} from "./golden-store.ts";
export {
  type Hypervisor,
  type HypervisorDescriptors,
  type HypervisorEnd,
  type HypervisorOptions,
  inheritedDescriptors,
  reopenedDescriptors,
  startHypervisor,
} from "./hypervisor.ts";
export * from "./image/index.ts";
export { onPortChange } from "./lane-state.ts";
export { pause, quit, restore, resume, saveState } from "./machine-state.ts";
export { goldenStorePowers } from "./powers-node.ts";
export { type ProbedAccelerator, type ProbeOptions, probeAccelerator } from "./probe.ts";
export { Qmp, type QmpCommand, type QmpEvent } from "./qmp.ts";
