import { assert } from "@capsem/base";
import { DESCRIPTOR_SET, DISKS } from "./device-layout.ts";
import type { Hypervisor } from "./hypervisor.ts";

const JOINED = "disk1-image";

/**
 * Puts the VM's own disk behind the device that was a placeholder so far. Only while the VM is paused and
 * nobody in the guest holds the device: a holder would go on with what it read before. Once for each VM.
 */
export async function joinDisk({ qmp, options }: Hypervisor): Promise<void> {
  assert(options.descriptors.disk !== undefined, "this VM has no disk to join");
  const added = qmp.call("blockdev-add", {
    driver: "qcow2",
    "node-name": JOINED,
    file: { driver: "file", filename: `/dev/fdset/${DESCRIPTOR_SET.disk}` },
    // A guest's flush reaches the host's disk, so that what it synced survives the host's crash.
    cache: { direct: false, "no-flush": false },
    discard: "unmap",
    "detect-zeroes": "unmap",
    // Whatever header the image has: it is its whole content, other files are never opened.
    backing: null,
  });
  const [, own] = DISKS;
  const node = { driver: "raw", "node-name": own.node, file: JOINED };
  const reopened = { options: [{ ...node, discard: "unmap", "detect-zeroes": "unmap" }] };
  // In one go: QEMU takes commands in their order, and refuses the second without the first.
  await Promise.all([added, qmp.call("blockdev-reopen", reopened)]);
}
