import { spawn, spawnSync } from "node:child_process";
import { rm } from "node:fs/promises";
import { release } from "node:os";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import { native, SEAL } from "@capsem/native";
import {
  cpuModelFor,
  createDisk,
  diskAllocatedBytes,
  findQemu,
  goldenKey,
  goldenStorePowers,
  LAYOUT_VERSION,
  MACHINE,
  openGoldenStore,
  openImage,
  probeAccelerator,
  type GoldenIdentity as VmmGoldenIdentity,
} from "@capsem/vmm";
import type { HomeLayout } from "./home/layout.ts";
import { findImageFiles } from "./image-program.ts";
import type { GoldenIdentity, GoldenStore, Machinery, OpenedImage } from "./machinery.ts";

/** The real mechanisms. `programFolder` holds the bundles and the launcher. */
export function nodeMachinery(layout: HomeLayout, programFolder: string): Machinery {
  const { memfdCreate, copyFileInto, addSeals, socketPair, closeDescriptor } = native();
  return {
    async openImage() {
      const { image, agent } = await findImageFiles(programFolder, layout.cache);
      return openedImage(image.digest, image.dir, agent);
    },
    async reopenImage(digest, current) {
      const { dir } = await openImage(layout.cache, digest);
      return openedImage(digest, dir, { path: current.agentPath, digest: current.agentDigest });
    },
    async findHypervisor() {
      const found = findQemu({ searchPath: process.env.PATH ?? "", spawnSync });
      if (found === null) {
        throw new Failure("hypervisor_missing", "Cannot find qemu-system-x86_64: it is not on the PATH");
      }
      return found;
    },
    probeAccelerator: ({ binary, version }, image) =>
      probeAccelerator({
        qemuBinary: binary,
        qemuVersion: version,
        kernelPath: image.kernelPath,
        cacheFile: join(layout.cache, "accelerator.json"),
        spawn,
        hostRelease: release(),
        devices: { kvm: "/dev/kvm" },
      }),
    launcher: join(programFolder, "capsem-launch"),
    goldenKey: (identity) => goldenKey(vmmIdentity(identity)),
    goldens: goldenStore(layout.goldens),
    createDisk,
    diskAllocatedBytes,
    memory: {
      create: memfdCreate,
      copy: (sourceFd, targetFd, sizeBytes) => {
        copyFileInto(sourceFd, targetFd, sizeBytes);
      },
      seal: (fd) => addSeals(fd, SEAL.write | SEAL.shrink | SEAL.grow | SEAL.seal),
    },
    socketPair: () => socketPair("stream"),
    closeDescriptor,
  };
}

function openedImage(digest: string, dir: string, agent: { path: string; digest: string }): OpenedImage {
  return {
    digest,
    kernelPath: join(dir, "vmlinuz"),
    initrdPath: join(dir, "initrd.cpio"),
    rootPath: join(dir, "root.ext4"),
    pristinePath: join(dir, "pristine.qcow2"),
    agentPath: agent.path,
    agentDigest: agent.digest,
  };
}

function vmmIdentity({ image, accelerator, hypervisor, cpus, memoryMib }: GoldenIdentity): VmmGoldenIdentity {
  return {
    imageDigest: image.digest,
    agentDigest: image.agentDigest,
    qemuVersion: hypervisor.version,
    machine: MACHINE,
    cpuModel: cpuModelFor(accelerator.name),
    accelerator: accelerator.name,
    cpus,
    memoryMib,
    layoutVersion: LAYOUT_VERSION,
  };
}

function goldenStore(folder: string): GoldenStore {
  const store = openGoldenStore(folder, goldenStorePowers());
  return {
    find: (key) => store.find(key),
    async draft(key, identity) {
      const draft = await store.draft(key);
      return {
        ramPath: draft.ramPath,
        statePath: draft.statePath,
        commit: () => draft.commit(vmmIdentity(identity)),
        abort: () => draft.abort(),
      };
    },
    remove: (key) => rm(join(folder, key), { recursive: true, force: true }),
    async collect({ countMax, bytesMax }, keep) {
      await store.collect({ countMax, bytesMax, keepKeys: [...keep] });
    },
  };
}
