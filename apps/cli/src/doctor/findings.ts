import type { Powers } from "../powers.ts";
import { confinement } from "./confinement.ts";
import { gateway } from "./gateway.ts";
import { homeFolder } from "./home.ts";
import { diskSpace, guestImage, kvm, nodeVersion, serviceSocket } from "./machine.ts";
import { ledger, policy } from "./policy.ts";
import { program } from "./program.ts";
import { vmRecords } from "./vm-records.ts";

export interface Finding {
  readonly name: string;
  /** missing: Capsem cannot work. warning: it works, worse. skipped: nothing was looked at. */
  readonly state: "good" | "warning" | "missing" | "skipped";
  readonly detail: string;
  /** What to do; empty when nothing is. */
  readonly remedy: string;
}

export type Check = () => Finding | Promise<Finding>;

/** In the order in which they are needed. */
export function findings(powers: Powers): Check[] {
  const machine = process.arch === "arm64" ? "aarch64" : "x86_64";
  const qemuPackage = process.arch === "arm64" ? "qemu-system-arm" : "qemu-system-x86";
  const needs: [string, string, string, string, string][] = [
    ["QEMU", `qemu-system-${machine}`, "--version", qemuPackage, "VMs cannot run"],
    ["qemu-img", "qemu-img", "--version", "qemu-utils", "disks cannot be made"],
    ["e2fsprogs", "mkfs.ext4", "-V", "e2fsprogs", "file systems cannot be made"],
    ["mmdebstrap", "mmdebstrap", "--version", "mmdebstrap", "the guest image cannot be built"],
    ["flock", "flock", "--version", "util-linux", "the service cannot start"],
    ["g++", "g++", "--version", "g++", "the native addon cannot be built"],
  ];
  return [
    () => nodeVersion(process.versions.node),
    ...needs.map(
      ([name, file, flag, debian, lack]) =>
        () =>
          program({ name, file, flag, debian, lack }, powers),
    ),
    kvm,
    () => homeFolder(powers),
    () => diskSpace(powers),
    () => guestImage(powers),
    () => confinement(powers),
    () => vmRecords(powers),
    () => serviceSocket(powers),
    () => policy(powers),
    () => ledger(powers),
    () => gateway(powers),
  ];
}
