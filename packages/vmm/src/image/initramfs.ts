import { utf8 } from "@capsem/base";
import { type CpioEntry, encodeCpio } from "./cpio.ts";
import type { KernelModule } from "./kernel-modules.ts";

const FOLDERS = ["bin", "dev", "modules", "newroot"] as const;

/** What `/init` calls. busybox's shell finds its own programs by /proc, which is not there yet. */
const PROGRAMS = ["insmod", "mount", "sleep", "switch_root"] as const;

/** The first root file system: busybox, `/init`, and the modules with their order in `/modules/order`. */
export function encodeInitramfs(
  init: string,
  busybox: Uint8Array,
  modules: readonly KernelModule[],
): Uint8Array {
  const fileName = (module: KernelModule): string => `${module.name}.ko`;
  const entries: CpioEntry[] = [
    ...FOLDERS.map((path): CpioEntry => ({ kind: "directory", path, mode: 0o755 })),
    // The kernel opens it for /init before anything is mounted.
    { kind: "device", path: "dev/console", mode: 0o600, major: 5, minor: 1 },
    { kind: "file", path: "init", mode: 0o755, bytes: utf8(init) },
    { kind: "file", path: "bin/busybox", mode: 0o755, bytes: busybox },
    ...PROGRAMS.map((name): CpioEntry => ({ kind: "link", path: `bin/${name}`, target: "busybox" })),
    ...modules.map(
      (module): CpioEntry => ({
        kind: "file",
        path: `modules/${fileName(module)}`,
        mode: 0o644,
        bytes: module.bytes,
      }),
    ),
    {
      kind: "file",
      path: "modules/order",
      mode: 0o644,
      bytes: utf8(modules.map((module) => `${fileName(module)}\n`).join("")),
    },
  ];
  return encodeCpio(entries);
}
