/** States of a VM (design, "Defaults"): the legal moves are the service's table. */
export const VM_STATES = [
  "creating",
  "starting",
  "running",
  "stopping",
  "stopped",
  "failed",
  "deleting",
] as const;
export const VM_REASONS = [
  "service_lost",
  "owner_lost",
  "hypervisor_exit",
  "guest_lost",
  "guest_agent_lost",
  "out_of_memory",
  "stop_forced",
  "idle",
  "lifetime",
  "disk_quota",
  "image_missing",
  "checkpoint_corrupt",
  "boot_timeout",
  /** Its vm.json cannot be read: its disk is kept, and it can only be deleted. */
  "record_unreadable",
  /** This machine cannot confine the VM's processes, and `allow_unconfined` is not set. */
  "confinement_refused",
] as const;
export type VmState = (typeof VM_STATES)[number];
export type VmReason = (typeof VM_REASONS)[number];
