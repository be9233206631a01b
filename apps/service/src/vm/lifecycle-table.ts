import type { VmState } from "@capsem/api";

/** The legal moves of a VM (design, "Defaults"). `gone` is no state: the record is removed then. */
export const MOVES = {
  creating: ["starting", "failed", "deleting"],
  starting: ["running", "failed", "stopping", "deleting"],
  running: ["stopping", "stopped", "failed", "deleting"],
  stopping: ["stopped", "deleting"],
  stopped: ["starting", "deleting"],
  failed: ["starting", "deleting"],
  deleting: ["gone"],
} as const satisfies Readonly<Record<VmState, readonly (VmState | "gone")[]>>;

export function isLegalMove(from: VmState, to: VmState | "gone"): boolean {
  return (MOVES[from] as readonly string[]).includes(to);
}

/** Whether a VM in this state has processes, memory and a claim on the running limit. */
export const IS_LIVE: Readonly<Record<VmState, boolean>> = {
  creating: true,
  starting: true,
  running: true,
  stopping: true,
  stopped: false,
  failed: false,
  deleting: false,
};

/**
 * What a restart makes of each state that it finds: VMs die with the service. `keep` leaves the record as it
 * is, `stop` makes it stopped with reason service_lost, `remove` finishes what a creation or deletion began.
 */
export const AFTER_RESTART = {
  creating: { temporary: "remove", retained: "remove" },
  starting: { temporary: "remove", retained: "stop" },
  running: { temporary: "remove", retained: "stop" },
  stopping: { temporary: "remove", retained: "stop" },
  stopped: { temporary: "remove", retained: "keep" },
  failed: { temporary: "keep", retained: "keep" },
  deleting: { temporary: "remove", retained: "remove" },
} as const satisfies Readonly<Record<VmState, Readonly<Record<"temporary" | "retained", RestartMove>>>>;
export type RestartMove = "keep" | "stop" | "remove";

/** Where a VM goes whose owner is lost while nobody asked for it. */
export const AFTER_LOSS = { temporary: "failed", retained: "stopped" } as const;

export function kindOfVm(record: { readonly name: string | null }): "temporary" | "retained" {
  return record.name === null ? "temporary" : "retained";
}
