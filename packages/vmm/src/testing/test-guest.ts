// For tests: a guest without an image. It runs the image's kernel and modules, and answers shell lines on the
// control lane.
import { spawn, spawnSync } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { within } from "@capsem/base";
import { native, SEAL } from "@capsem/native";
import type { StartKind } from "../command-line.ts";
import { joinDisk } from "../disk-join.ts";
import {
  type Hypervisor,
  type HypervisorDescriptors,
  type HypervisorOptions,
  startHypervisor,
} from "../hypervisor.ts";
import { encodeCpio } from "../image/cpio.ts";
import { restore, resume, saveState } from "../machine-state.ts";

const ANSWER_TIMEOUT_MS = 60_000;
export const TEST_MEMORY_MIB = 128;
export const TEST_DISK_BYTES = 64 * 1024 ** 3;

const INIT = `#!/bin/busybox sh
B=/bin/busybox
$B mkdir -p /dev /proc /sys /mnt
[ -c /dev/null ] || $B mount -t devtmpfs dev /dev
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
while read -r module; do $B insmod "/modules/$module"; done </modules/order
tries=0
while [ ! -e /dev/vport1p1 ] && [ ! -e /sys/class/virtio-ports ] && [ $tries -lt 100 ]; do $B sleep 0.05; tries=$((tries+1)); done
while :; do
  for port in /sys/class/virtio-ports/*; do
    name=
    read -r name <"$port/name"
    [ "$name" = capsem.control ] && lane="/dev/\${port##*/}"
  done
  [ -n "$lane" ] && [ -c "$lane" ] && break
  $B sleep 0.05
done
export PATH=/bin
$B mkdir -p /bin
$B --install -s /bin 2>/dev/null
exec <>"$lane" >&0 2>&1
echo ready
while read -r line; do eval "$line"; echo "::end $?"; done
`;

/** The folder of a built image in the cache that tests share; undefined when there is none yet. */
export function testImage(): string | undefined {
  const { CAPSEM_TEST_IMAGE, CAPSEM_CACHE, CAPSEM_HOME, HOME } = process.env;
  if (CAPSEM_TEST_IMAGE !== undefined) return CAPSEM_TEST_IMAGE;
  const images = join(CAPSEM_CACHE ?? CAPSEM_HOME ?? join(HOME ?? "/", ".capsem"), "images");
  const names = existsSync(images) ? readdirSync(images) : [];
  const name = names.find((candidate) => existsSync(join(images, candidate, "COMPLETE")));
  return name === undefined ? undefined : join(images, name);
}

/** Sends shell lines and collects their output. */
export class TestShell {
  #text = "";
  #closed = false;
  #wake: () => void = () => undefined;
  readonly #lane: Duplex;

  constructor(lane: Duplex) {
    this.#lane = lane;
    lane.on("data", (chunk: Buffer) => {
      this.#text += chunk.toString("latin1");
      this.#wake();
    });
    lane.once("close", () => {
      this.#closed = true;
      this.#wake();
    });
  }

  ready(): Promise<string> {
    return this.#until(/^ready\r?\n/m);
  }

  async run(line: string): Promise<string> {
    this.#lane.write(`${line}\n`);
    return (await this.#until(/::end \d+\r?\n/)).trim();
  }

  /** Takes everything through the match; returns what stood before it. */
  #until(pattern: RegExp): Promise<string> {
    const found = new Promise<string>((resolve, reject) => {
      const look = () => {
        const match = pattern.exec(this.#text);
        if (match !== null) {
          const before = this.#text.slice(0, match.index);
          this.#text = this.#text.slice(match.index + match[0].length);
          resolve(before);
        } else if (this.#closed) reject(new Error(`the lane closed after ${JSON.stringify(this.#text)}`));
      };
      this.#wake = look;
      look();
    });
    return within(
      found,
      ANSWER_TIMEOUT_MS,
      () => new Error(`no ${pattern} in ${JSON.stringify(this.#text)}`),
    );
  }
}

export interface TestStart extends Partial<Omit<HypervisorOptions, "descriptors">> {
  kind: StartKind;
  memory?: number;
  state?: string;
  disk?: string;
}

export interface TestGolden {
  memory: number;
  state: string;
}

export interface TestVm {
  hypervisor: Hypervisor;
  shell: TestShell;
  console(): string;
}

/** A folder with what a VM needs, and the descriptors that are open on it. `close` removes and closes all. */
export class TestBench {
  readonly folder = mkdtempSync(join(tmpdir(), "capsem-vmm-"));
  readonly #open: number[] = [];
  readonly #vms: Hypervisor[] = [];

  constructor(image: string) {
    mkdirSync(join(this.folder, "image"));
    const init = encodeCpio([{ kind: "file", path: "init", mode: 0o755, bytes: Buffer.from(INIT) }]);
    writeFileSync(this.path("initrd"), Buffer.concat([readFileSync(join(image, "initrd.cpio")), init]));
    writeFileSync(this.path("kernel"), readFileSync(join(image, "vmlinuz")));
    writeFileSync(this.path("root"), Buffer.alloc(4096, "root"));
    writeFileSync(this.path("agent"), Buffer.alloc(4096, "agent"));
  }

  path(name: string): string {
    return join(this.folder, "image", name);
  }

  memory(name: string, memoryMib = TEST_MEMORY_MIB): number {
    const fd = native().memfdCreate(name, memoryMib * 1024 ** 2);
    this.#open.push(fd);
    return fd;
  }

  /** An ext4 file system in a qcow2 of its own. */
  disk(name: string): string {
    const raw = this.path(`${name}.raw`);
    const qcow2 = this.path(`${name}.qcow2`);
    run("truncate", ["-s", `${TEST_DISK_BYTES}`, raw]);
    run("mkfs.ext4", ["-q", "-F", "-m", "0", "-i", "65536", "-J", "size=64", "-O", "^resize_inode", raw]);
    run("qemu-img", ["convert", "-O", "qcow2", raw, qcow2]);
    rmSync(raw);
    return qcow2;
  }

  /** `state` and `disk` are paths, opened for this VM alone; our copies close once QEMU has its own. */
  async start({ kind, memory, state, disk, ...rest }: TestStart): Promise<TestVm> {
    const [ours, theirs] = native().socketPair("stream");
    this.#open.push(ours);
    const own: Record<string, number> = { traffic: theirs };
    const kept: Record<string, number> = memory === undefined ? {} : { memory };
    if (state !== undefined && kind === "golden") {
      kept.state = openSync(state, "w");
      this.#open.push(kept.state);
    }
    try {
      for (const name of ["kernel", "initrd", "root", "agent"]) own[name] = openSync(this.path(name), "r");
      if (state !== undefined && kind === "fork") own.state = openSync(state, "r");
      if (disk !== undefined) own.disk = openSync(disk, "r+");
      const hypervisor = await startHypervisor({
        kind,
        vmId: "vm_test",
        cpus: 1,
        memoryMib: TEST_MEMORY_MIB,
        accelerator: "tcg",
        qemuBinary: "/usr/bin/qemu-system-x86_64",
        launcher: null,
        launcherArguments: [],
        diskCapacityBytes: TEST_DISK_BYTES,
        spawn,
        sendDescriptors: (socketFd, payload, fds) => native().sendDescriptors(socketFd, payload, fds),
        ...rest,
        descriptors: { ...own, ...kept } as unknown as HypervisorDescriptors,
      });
      this.#vms.push(hypervisor);
      let console = "";
      hypervisor.console.on("data", (chunk: Buffer) => {
        console += chunk.toString("latin1");
      });
      return { hypervisor, shell: new TestShell(hypervisor.control), console: () => console };
    } finally {
      for (const fd of Object.values(own)) closeSync(fd);
    }
  }

  /** Boots once and saves; the memory comes back sealed. */
  async golden(
    prepare: (vm: TestVm) => Promise<void> = async () => undefined,
    options: Omit<TestStart, "kind" | "memory" | "state"> = {},
  ): Promise<TestGolden> {
    const memory = this.memory("golden");
    const state = this.path("state");
    const vm = await this.start({ kind: "golden", memory, state, ...options });
    await resume(vm.hypervisor);
    await vm.shell.ready();
    await prepare(vm);
    await saveState(vm.hypervisor, 5_000);
    native().addSeals(memory, SEAL.write | SEAL.shrink | SEAL.grow | SEAL.seal);
    return { memory, state };
  }

  /** A fork of a golden that is ready for its first line. */
  async fork(
    golden: TestGolden,
    options: Omit<TestStart, "kind" | "memory" | "state"> = {},
  ): Promise<TestVm> {
    const vm = await this.start({ kind: "fork", ...golden, ...options });
    await restore(vm.hypervisor, 5_000);
    if (options.disk !== undefined) await joinDisk(vm.hypervisor);
    await resume(vm.hypervisor);
    return vm;
  }

  async close(): Promise<void> {
    for (const hypervisor of this.#vms) {
      hypervisor.kill();
      await hypervisor.ended;
    }
    for (const fd of this.#open) closeSync(fd);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function run(command: string, words: string[]): void {
  const { status, stderr } = spawnSync(command, words, { encoding: "utf8" });
  if (status !== 0) throw new Error(`${command} ended with ${status}: ${stderr}`);
}
