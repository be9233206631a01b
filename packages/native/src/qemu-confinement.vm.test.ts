import { spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { launchWords } from "./launcher.ts";
import { native } from "./native.ts";
import { buildFixture, copyForAll, distDir } from "./native-fixture.ts";
import { qemuReadPaths, qemuWritePaths } from "./qemu-confinement.ts";

const qemu = "/usr/bin/qemu-system-x86_64";
const usable = process.getuid?.() === 0 && existsSync(qemu);
if (!usable) console.log("skipped: QEMU under the launcher, because it needs root and qemu-system-x86_64");
const confined = test.skipIf(!usable);

const MACHINE = [
  ...["-M", "q35,usb=off,sata=off,smbus=off,memory-backend=ram0", "-accel", "tcg,thread=multi,tb-size=32"],
  ...["-m", "64M", "-nodefaults", "-no-user-config", "-nographic", "-qmp", "stdio"],
  ...["-object", "memory-backend-file,id=ram0,size=64M,mem-path=/proc/self/fd/3,share=off"],
  ...["-object", "rng-random,id=rng0,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng0"],
  ...["-device", "virtio-serial-pci"],
  ...["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"],
];
/** A writable disk by two descriptors: QEMU opens it read-only before it takes the right to write. */
const DISK = [
  ...["-add-fd", "set=1,fd=4", "-add-fd", "set=1,fd=5"],
  ...["-drive", "id=d0,if=none,file=/dev/fdset/1,format=raw", "-device", "virtio-blk-pci,drive=d0"],
];
const COMMANDS = `{"execute":"qmp_capabilities"}{"execute":"query-status"}{"execute":"quit"}`;

/** Starts the machine, asks for its state and ends it; `user` as root, without one as uid 65534. */
function runMachine(args: readonly string[], dropped: boolean, landlock: "require" | "off" = "require") {
  const folder = mkdtempSync(join(tmpdir(), "qemu-"));
  writeFileSync(join(folder, "disk"), Buffer.alloc(1024 * 1024), { mode: 0o600 });
  const memory = native().memfdCreate("ram", 64 * 1024 * 1024);
  const disks = [openSync(join(folder, "disk"), "r"), openSync(join(folder, "disk"), "r+")];
  const launcherPath = copyForAll(join(distDir, "capsem-launch"));
  const grants = { ...qemuReadPaths(qemu), write: qemuWritePaths("tcg") };
  const user = dropped ? { user: { uid: 200_001, gid: 200_001 } } : {};
  const launch = {
    parentPid: process.pid,
    command: qemu,
    args,
    grants,
    keepFds: [3, 4, 5],
    landlock,
    ...user,
  };
  const words = launchWords(launch, launcherPath);
  const ended = spawnSync(words.file, words.args, {
    stdio: ["pipe", "pipe", "pipe", memory, ...disks],
    input: COMMANDS,
    encoding: "utf8",
    timeout: 30_000,
    ...(dropped ? {} : { uid: 65_534, gid: 65_534 }),
  });
  native().closeDescriptor(memory);
  for (const disk of disks) closeSync(disk);
  rmSync(folder, { recursive: true });
  rmSync(dirname(launcherPath), { recursive: true });
  return ended;
}

await buildFixture();

for (const dropped of [true, false]) {
  const who = dropped ? "as root that drops to a plain uid" : "as an unprivileged user";
  confined(`QEMU runs on its list of paths alone, ${who}`, () => {
    const ended = runMachine([...MACHINE, ...DISK], dropped);
    expect(ended.stderr).toBe("");
    expect(ended.status).toBe(0);
    expect(ended.stdout).toContain('"status": "running"');
  });
}

confined("QEMU opens no other file, which it could without Landlock", () => {
  const other = ["-drive", "id=d1,if=none,file=/etc/passwd,format=raw,readonly=on"];
  expect(runMachine([...MACHINE, ...DISK, ...other], true, "off").status).toBe(0);
  const denied = runMachine([...MACHINE, ...DISK, ...other], true);
  expect(denied.status).toBe(1);
  expect(denied.stderr).toContain("Could not open '/etc/passwd': Permission denied");
});
