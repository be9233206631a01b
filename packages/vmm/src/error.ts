import { Failure } from "@capsem/base";

/** The closed list of what fails in this package. */
export type VmmFailureKind =
  /** No QEMU, or one that is too old. */
  | "hypervisor_missing"
  /** The hypervisor ended while something was asked of it. */
  | "hypervisor_exit"
  /** The hypervisor did not answer or did not reach a state in time. */
  | "hypervisor_timeout"
  /** The hypervisor answered a command with an error. */
  | "hypervisor_refused"
  /** The hypervisor said what is not QMP: it is not trusted any more. */
  | "hypervisor_protocol"
  /** A golden that was complete once cannot be used. */
  | "checkpoint_corrupt"
  | "disk_exists"
  | "disk_missing";

export function vmmFailure(
  kind: VmmFailureKind,
  message: string,
  options: { cause?: unknown; detail?: string } = {},
): Failure<VmmFailureKind> {
  return new Failure(kind, message, options);
}
