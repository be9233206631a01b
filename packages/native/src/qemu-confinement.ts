import { existsSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";

/** Paths that a launched command may use: a folder stands for everything below it. */
export interface Grants {
  read: readonly string[];
  exec: readonly string[];
  write?: readonly string[];
}

/**
 * What the system emulator opens, found by running Debian's QEMU 7.2 (`-M q35 -accel tcg -nodefaults` with its
 * seccomp sandbox, virtio disks, serial ports and entropy) under the launcher, as root that drops to a plain uid
 * and as an unprivileged user. It also tries, and does well without: `/proc/self/status`, `/proc/filesystems`,
 * `/sys/devices/system/{cpu,node}`, `/sys/bus/nd/devices`, `/etc/localtime`, its working folder.
 *
 * A VM's own files are not here. Its memory is a memfd, which Landlock lets its holder open again without a rule.
 * Disks are best passed as descriptors (`-add-fd`, then `/dev/fdset/N`): that needs neither a rule nor a file mode
 * that the dropped user can read. A writable disk needs two descriptors in its set, one read-only and one
 * read-write, since QEMU opens it read-only first.
 */
const READ_FILES = [
  "/dev/urandom", // virtio-rng
  // How large the large pages are that its C library asks for, see HYPERVISOR_ENVIRONMENT of @capsem/vmm.
  "/sys/kernel/mm/transparent_hugepage/enabled",
  "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
];

/** Below the prefix of the binary (`/usr` for Debian). The accelerator is a module: `lib/.../qemu/accel-tcg-*.so`. */
const READ_BELOW_PREFIX = [
  "share/qemu", // kvmvapic.bin, linuxboot_dma.bin
  "share/seabios", // bios-256k.bin
];

/** Libraries are mapped after a plain open for reading: the right to execute is needed for the binary and its loader. */
const LOADERS: Readonly<Record<string, readonly string[]>> = {
  x64: ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"],
  arm64: ["/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"],
};

const TRIPLES: Readonly<Record<string, string>> = { x64: "x86_64-linux-gnu", arm64: "aarch64-linux-gnu" };

/** Opened for writing: `/dev/null` to find out whether files can be locked; `/dev/kvm` for its ioctls. */
const WRITE_FILES = ["/dev/null"];
const WRITE_FILES_KVM = ["/dev/kvm"];

/** What a QEMU binary reads and executes on this machine; what does not exist here is left out. */
export function qemuReadPaths(
  qemuBinary: string,
  arch: string = process.arch,
): { read: string[]; exec: string[] } {
  const binary = realpathSync(qemuBinary);
  const prefix = dirname(dirname(binary));
  const read = [
    ...READ_FILES,
    ...["/usr", prefix].flatMap((root) => READ_BELOW_PREFIX.map((path) => join(root, path))),
  ];
  const libraries = libraryPaths(binary, arch);
  return {
    read: [...new Set([...present(read), ...libraries.read])],
    exec: present([binary, ...libraries.exec]),
  };
}

/** What any dynamically linked program at this real path needs to start: its libraries to read, its loader to execute. */
export function libraryPaths(
  binary: string,
  arch: string = process.arch,
): { read: string[]; exec: string[] } {
  const prefix = dirname(dirname(binary));
  return {
    read: present(["/etc/ld.so.cache", ...libraryFolders(prefix, arch)]),
    exec: present(LOADERS[arch] ?? []),
  };
}

/**
 * What QEMU writes beside the VM's own files. `/dev/kvm` belongs to a group on most systems: whoever drops root
 * gives QEMU that group as its gid.
 */
export function qemuWritePaths(accelerator: "tcg" | "kvm"): string[] {
  return present([...WRITE_FILES, ...(accelerator === "kvm" ? WRITE_FILES_KVM : [])]);
}

function libraryFolders(prefix: string, arch: string): string[] {
  const triple = TRIPLES[arch] ?? arch;
  const own = prefix === "/usr" ? [] : [join(prefix, "lib"), join(prefix, "lib64")];
  return [...own, join("/usr/lib", triple), join("/lib", triple), "/usr/lib64", "/lib64"];
}

/** Existing paths by their real names, each once. */
function present(paths: readonly string[]): string[] {
  return [...new Set(paths.filter((path) => existsSync(path)).map((path) => realpathSync(path)))];
}
