/**
 * The machine that every VM sees. A golden only fits a hypervisor that is built exactly like the one it was
 * saved by, so nothing here depends on the kind of start; raise `LAYOUT_VERSION` with every change.
 */
export const LAYOUT_VERSION = 2;

/**
 * Pinned: the alias `q35` means another machine in each QEMU version. 7.2 is the oldest QEMU we run on and
 * newer ones keep its machine. `microvm` boots sooner, but hangs under emulation on a busy host.
 */
export const MACHINE = "pc-q35-7.2";

/** What is on a q35 and no guest of ours uses: less to emulate, less to attack. */
export const MACHINE_OPTIONS = [
  "usb=off",
  "vmport=off",
  "hpet=off",
  "sata=off",
  "smbus=off",
  "graphics=off",
  // Without it a core dump of QEMU would hold the guest's memory.
  "dump-guest-core=off",
  // Merging equal pages between VMs would tell one VM about the other's content.
  "mem-merge=off",
] as const;

/** x86-64-v2, which today's distributions ask for; a newer level costs emulation time. */
export const CPU_MODEL_EMULATED =
  "qemu64,family=6,model=6,stepping=3,+ssse3,+sse4.1,+sse4.2,+popcnt,+aes,+rdrand,+cx16,+lahf_lm";
/** Under hardware acceleration the guest sees the host's CPU. Unproven: no machine of ours had it. */
export const CPU_MODEL_ACCELERATED = "host";

/**
 * Translated code, in MiB: no part of a golden, so every VM has its own. A full cache is thrown away whole, and then
 * all that runs is translated anew, 300 to 400 ms of it. Coming up and warming in the pool makes 50 to 65 MiB, so that
 * with 64 the first command after a claim met that. Memory is taken as the cache fills.
 */
export const TRANSLATION_CACHE_MIB = 128;

/**
 * The whole environment of a hypervisor: QEMU itself reads TMPDIR, XDG_* and more, and none of it is ours to give.
 * Before its control answers it has filled 13 MiB of heap, each page by a fault of its own; in large pages that takes a
 * quarter of a start's processor time less. A C library or a kernel without them ignores the word.
 */
export const HYPERVISOR_ENVIRONMENT = {
  GLIBC_TUNABLES: "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1",
} as const;

/** Descriptor numbers inside QEMU. Sockets are the parent's `pipe` entries; the others are inherited. */
export const DESCRIPTOR = {
  qmp: 3,
  control: 4,
  bulk: 5,
  traffic: 6,
  kernel: 7,
  initrd: 8,
  root: 9,
  agent: 10,
  disk: 11,
  memory: 12,
  state: 13,
} as const;

/** QEMU's sets of descriptors: a block node names `/dev/fdset/N`, so no path has to be reachable. */
export const DESCRIPTOR_SET = { root: 1, agent: 2, disk: 3 } as const;

/** In the order of the guest's names: vda, vdb, vdc. `id` is the block node that the device is bound to. */
export const DISKS = [
  /** The read-only system. */
  { node: "root", device: "disk-root", address: "0x2" },
  /** The VM's own disk, a placeholder until it joins. Nobody opens it in a golden. */
  { node: "disk1", device: "disk-own", address: "0x3" },
  /** The guest agent. */
  { node: "agent", device: "disk-agent", address: "0x4" },
] as const;

export const LANES = ["control", "bulk", "traffic"] as const;
export type Lane = (typeof LANES)[number];

/** Port 0 of a virtio serial bus is the console's. `id` makes QEMU report that the guest opened the port. */
export const LANE_PORT = { control: 1, bulk: 2, traffic: 3 } as const satisfies Record<Lane, number>;

export const SERIAL_BUS_ADDRESS = "0x5";
export const RANDOM_ADDRESS = "0x6";

/** QEMU's own seccomp filter: no obsolete calls, no new user id, no program, no scheduling changes. */
export const SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
