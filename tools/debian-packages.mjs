// What the product needs from Debian: a program or file that proves it is there, the package that brings it, why.
const arm = process.arch === "arm64";

export const DEBIAN_PACKAGES = [
  {
    probe: `qemu-system-${arm ? "aarch64" : "x86_64"}`,
    name: arm ? "qemu-system-arm" : "qemu-system-x86",
    why: "runs the VMs",
  },
  { probe: "qemu-img", name: "qemu-utils", why: "makes the VMs' disks" },
  { probe: "mmdebstrap", name: "mmdebstrap", why: "builds the guest image" },
  { probe: "mkfs.ext4", name: "e2fsprogs", why: "makes file systems" },
  { probe: "setpriv", name: "util-linux", why: "builds the guest image without rights" },
  { probe: "xz", name: "xz-utils", why: "unpacks kernel modules" },
  { probe: "g++", name: "g++", why: "compiles the native addon" },
  { probe: "/usr/include/stdio.h", name: "libc6-dev", why: "compiles the guest helper" },
];

/** Who is not root builds the image in a user namespace. */
export const USER_PACKAGES = [
  { probe: "newuidmap", name: "uidmap", why: "builds the guest image as a user" },
];
