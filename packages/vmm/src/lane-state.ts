import { LANES, type Lane } from "./device-layout.ts";
import type { Hypervisor } from "./hypervisor.ts";

/**
 * Tells when the guest opens or closes its end of a lane. QEMU reports at most one change of a lane in a
 * second, the last one then; after a restore it reports every lane once, as soon as the VM runs.
 */
export function onPortChange({ qmp }: Hypervisor, listener: (lane: Lane, open: boolean) => void): void {
  qmp.on("VSERPORT_CHANGE", ({ id, open }) => {
    const lane = LANES.find((name) => id === `lane-${name}`);
    if (lane !== undefined && typeof open === "boolean") listener(lane, open);
  });
}
