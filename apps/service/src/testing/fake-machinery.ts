import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { copyFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import type { GoldenStore, Machinery } from "../machinery.ts";

export interface FakeFaults {
  openImage?: Error;
  createDisk?: Error;
  /** Each disk is made when this resolves. */
  diskGate?: () => Promise<void>;
  commit?: Error;
  diskBytes?: number;
  /** Both ends of a traffic lane; closed at both ends otherwise. */
  lane?: () => [number, number];
}

/** Images, disks and goldens as small files; sealed memory as plain ones. `faults` may be changed at any time. */
export function fakeMachinery(cache: string, faults: FakeFaults = {}): Machinery {
  const image = join(cache, "images", "fake");
  mkdirSync(image, { recursive: true });
  for (const name of ["kernel", "initrd", "root", "pristine", "agent"]) {
    writeFileSync(join(image, name), `${name} of a fake image`);
  }
  const path = (name: string) => join(image, name);
  return {
    async openImage() {
      if (faults.openImage !== undefined) throw faults.openImage;
      return {
        digest: "sha256:fake",
        kernelPath: path("kernel"),
        initrdPath: path("initrd"),
        rootPath: path("root"),
        pristinePath: path("pristine"),
        agentPath: path("agent"),
        agentDigest: "sha256:agent",
      };
    },
    async reopenImage(digest) {
      throw new Failure("image_missing", `Cannot open image "${digest}": not in the cache`);
    },
    probeAccelerator: async () => ({ name: "tcg", reason: "a fake" }),
    findHypervisor: async () => ({ binary: "/usr/bin/sleep", version: "fake" }),
    launcher: "/usr/bin/env",
    goldenKey: ({ cpus, memoryMib }) => `${cpus}-${memoryMib}`,
    goldens: fakeGoldens(join(cache, "goldens"), faults),
    async createDisk(pristinePath, diskPath) {
      if (faults.createDisk !== undefined) throw faults.createDisk;
      await faults.diskGate?.();
      await copyFile(pristinePath, diskPath);
    },
    diskAllocatedBytes: async (disk) => faults.diskBytes ?? (await stat(disk)).blocks * 512,
    memory: {
      create(name) {
        const file = join(cache, `memory-${name}-${Math.random()}`);
        return openSync(file, "w+");
      },
      copy(sourceFd, targetFd) {
        const bytes = Buffer.alloc(4096);
        const length = readSync(sourceFd, bytes, 0, bytes.length, 0);
        writeSync(targetFd, bytes, 0, length, 0);
      },
      seal: () => undefined,
    },
    socketPair: () => faults.lane?.() ?? [openSync("/dev/null", "r"), openSync("/dev/null", "r")],
    closeDescriptor: closeSync,
  };
}

function fakeGoldens(root: string, faults: FakeFaults): GoldenStore {
  mkdirSync(root, { recursive: true });
  const pathsOf = (folder: string) => ({ ramPath: join(folder, "ram"), statePath: join(folder, "state") });
  return {
    async find(key) {
      const folder = join(root, key);
      return existsSync(join(folder, "COMPLETE")) ? pathsOf(folder) : null;
    },
    async draft(key) {
      const folder = join(root, `draft-${key}`);
      mkdirSync(folder, { recursive: true });
      return {
        ...pathsOf(folder),
        async commit() {
          if (faults.commit !== undefined) throw faults.commit;
          await writeFile(join(folder, "COMPLETE"), "");
          await rename(folder, join(root, key));
          return pathsOf(join(root, key));
        },
        abort: () => rm(folder, { recursive: true, force: true }),
      };
    },
    remove: (key) => rm(join(root, key), { recursive: true, force: true }),
    collect: async () => undefined,
  };
}

/** A golden as an earlier service would have left it. */
export function storeFakeGolden(root: string, key: string): void {
  const folder = join(root, key);
  mkdirSync(folder, { recursive: true });
  for (const name of ["ram", "state", "COMPLETE"]) writeFileSync(join(folder, name), name);
  truncateSync(join(folder, "ram"), Number(key.split("-")[1]) * 1024 ** 2);
}
