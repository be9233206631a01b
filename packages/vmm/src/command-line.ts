import { assert } from "@capsem/base";
import {
  CPU_MODEL_ACCELERATED,
  CPU_MODEL_EMULATED,
  DESCRIPTOR,
  DESCRIPTOR_SET,
  DISKS,
  LANE_PORT,
  LANES,
  MACHINE,
  MACHINE_OPTIONS,
  RANDOM_ADDRESS,
  SANDBOX,
  SERIAL_BUS_ADDRESS,
  TRANSLATION_CACHE_MIB,
} from "./device-layout.ts";
import { KERNEL_CMDLINE } from "./image/kernel-cmdline.ts";

export type Accelerator = "kvm" | "hvf" | "tcg";
/** fork: on a golden's memory, private. golden: on memory that will be one. cold: on memory of its own. */
export type StartKind = "fork" | "cold" | "golden";

export interface CommandLineOptions {
  kind: StartKind;
  vmId: string;
  cpus: number;
  memoryMib: number;
  accelerator: Accelerator;
  diskCapacityBytes: number;
  descriptors: { readonly disk?: number };
}

/** QEMU's arguments. Every file in them is a descriptor of device-layout.ts: no path of the host is named. */
export function planCommandLine(options: CommandLineOptions): string[] {
  assert(/^[a-z0-9_-]{1,64}$/.test(options.vmId), "bad VM id");
  assert(Number.isSafeInteger(options.cpus) && options.cpus >= 1, `bad number of CPUs ${options.cpus}`);
  assert(Number.isSafeInteger(options.memoryMib) && options.memoryMib >= 64, "bad memory size");
  assert(
    Number.isSafeInteger(options.diskCapacityBytes) &&
      options.diskCapacityBytes > 0 &&
      options.diskCapacityBytes % 512 === 0,
    "bad disk capacity",
  );
  return [
    ...["-name", `capsem-${options.vmId}`],
    ...machine(options),
    ...["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-sandbox", SANDBOX],
    // A fork never starts at the reset vector. Not reading the kernel saves it 50 ms and 14 MiB.
    ...(options.kind === "fork" ? [] : kernel()),
    // Nothing runs before the caller says so: events are listened to, state is restored, the disk is joined.
    "-S",
    ...(options.kind === "fork" ? ["-incoming", "defer"] : []),
    ...["-chardev", `socket,id=qmp,fd=${DESCRIPTOR.qmp}`, "-mon", "chardev=qmp,mode=control"],
    // Signals off: QEMU must not read its terminal's keys; there is none, stdin is empty.
    ...["-chardev", "stdio,id=console,mux=off,signal=off", "-serial", "chardev:console"],
    ...disks(options),
    ...lanes(),
    ...[
      "-object",
      "rng-builtin,id=random",
      "-device",
      device("virtio-rng-pci", RANDOM_ADDRESS, "rng=random"),
    ],
  ];
}

/** The CPU model of an accelerator: part of a golden's identity. */
export function cpuModelFor(accelerator: Accelerator): string {
  return accelerator === "tcg" ? CPU_MODEL_EMULATED : CPU_MODEL_ACCELERATED;
}

export function acceleratorArguments(accelerator: Accelerator): string[] {
  const name = accelerator === "tcg" ? `tcg,thread=multi,tb-size=${TRANSLATION_CACHE_MIB}` : accelerator;
  return ["-accel", name, "-cpu", cpuModelFor(accelerator)];
}

function machine(options: CommandLineOptions): string[] {
  const size = `${options.memoryMib}M`;
  return [
    ...["-machine", [MACHINE, ...MACHINE_OPTIONS, "memory-backend=ram0"].join(",")],
    ...acceleratorArguments(options.accelerator),
    ...["-smp", `${options.cpus}`, "-m", size],
    ...["-object", memory(options.kind, size)],
  ];
}

function memory(kind: StartKind, size: string): string {
  const path = `/proc/self/fd/${DESCRIPTOR.memory}`;
  switch (kind) {
    case "fork":
      // Private: the golden's pages are shared until they are written. A writable map is refused by its seals.
      return `memory-backend-file,id=ram0,size=${size},mem-path=${path},share=off,dump=off`;
    case "golden":
      return `memory-backend-file,id=ram0,size=${size},mem-path=${path},share=on,dump=off`;
    case "cold":
      return `memory-backend-ram,id=ram0,size=${size},dump=off`;
  }
}

function kernel(): string[] {
  return [
    ...["-kernel", `/proc/self/fd/${DESCRIPTOR.kernel}`],
    ...["-initrd", `/proc/self/fd/${DESCRIPTOR.initrd}`],
    ...["-append", KERNEL_CMDLINE],
  ];
}

function disks(options: CommandLineOptions): string[] {
  const [root, own, agent] = DISKS;
  const readOnly = (node: string, set: number) =>
    // `format=raw` by name: a guessed format would let a guest write itself a header that names other files.
    `driver=raw,node-name=${node},read-only=on,file.driver=file,file.filename=/dev/fdset/${set},file.locking=off`;
  const placeholder = [
    `driver=raw,node-name=${own.node},discard=unmap,detect-zeroes=unmap`,
    `file.driver=null-co,file.size=${options.diskCapacityBytes},file.read-zeroes=on`,
  ].join(",");
  const sets = [
    `fd=${DESCRIPTOR.root},set=${DESCRIPTOR_SET.root}`,
    `fd=${DESCRIPTOR.agent},set=${DESCRIPTOR_SET.agent}`,
    ...(options.descriptors.disk === undefined ? [] : [`fd=${DESCRIPTOR.disk},set=${DESCRIPTOR_SET.disk}`]),
  ];
  const disk = ({ node, device: id, address }: (typeof DISKS)[number]) =>
    device("virtio-blk-pci", address, `drive=${node},id=${id}`);
  return [
    ...sets.flatMap((set) => ["-add-fd", set]),
    ...["-blockdev", readOnly(root.node, DESCRIPTOR_SET.root), "-device", disk(root)],
    // A full host disk is the guest's error to see: by default QEMU would pause the VM for good.
    ...["-blockdev", placeholder, "-device", `${disk(own)},werror=report,rerror=report`],
    ...["-blockdev", readOnly(agent.node, DESCRIPTOR_SET.agent), "-device", disk(agent)],
  ];
}

function lanes(): string[] {
  const bus = device("virtio-serial-pci", SERIAL_BUS_ADDRESS, `id=lanes,max_ports=${LANES.length + 1}`);
  const ports = LANES.flatMap((lane) => [
    ...["-chardev", `socket,id=${lane},fd=${DESCRIPTOR[lane]}`],
    "-device",
    `virtserialport,bus=lanes.0,nr=${LANE_PORT[lane]},id=lane-${lane},chardev=${lane},name=capsem.${lane}`,
  ]);
  return ["-device", bus, ...ports];
}

/** Fixed addresses, so that the machine does not depend on the order of the arguments. */
function device(driver: string, address: string, rest: string): string {
  return `${driver},bus=pcie.0,addr=${address},disable-legacy=on,${rest}`;
}
