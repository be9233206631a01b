// What the product needs from Debian: a command that proves it is there, the package that brings it, and why.
const machine = process.arch === "arm64" ? "aarch64" : "x86_64";

export const DEBIAN_PACKAGES = [
  {
    probe: `qemu-system-${machine}`,
    name: process.arch === "arm64" ? "qemu-system-arm" : "qemu-system-x86",
    why: "runs the VMs",
  },
  { probe: "qemu-img", name: "qemu-utils", why: "makes the VMs' disks" },
  { probe: "mmdebstrap", name: "mmdebstrap", why: "builds the guest image" },
  { probe: "/bin/busybox", name: "busybox-static", why: "starts the guest" },
  { probe: "mkfs.ext4", name: "e2fsprogs", why: "makes file systems" },
  { probe: "g++", name: "g++", why: "compiles the native addon" },
  { probe: "/usr/include/stdio.h", name: "libc6-dev", why: "compiles the guest helper" },
];
