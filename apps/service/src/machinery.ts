/** The VM mechanisms that the service drives: images, disks, goldens, descriptors. Real ones: machinery-node.ts. */
export interface Machinery {
  /** The image that new VMs get, with the guest agent's disk. Throws Failure("image_missing") and others. */
  openImage(): Promise<OpenedImage>;
  /** An older image, for a disk that was made on it, with the agent of `current`. Throws the same. */
  reopenImage(digest: string, current: OpenedImage): Promise<OpenedImage>;
  /** Throws Failure("hypervisor_missing"). */
  findHypervisor(): Promise<Hypervisor>;
  probeAccelerator(hypervisor: Hypervisor, image: OpenedImage): Promise<Accelerator>;
  readonly launcher: string;
  goldenKey(identity: GoldenIdentity): string;
  readonly goldens: GoldenStore;
  /** A new disk whose content is that of `pristinePath`. */
  createDisk(pristinePath: string, diskPath: string): Promise<void>;
  diskAllocatedBytes(path: string): Promise<number>;
  readonly memory: SharedMemory;
  /** Two connected stream sockets; the caller owns both. */
  socketPair(): [number, number];
  closeDescriptor(fd: number): void;
}

export interface OpenedImage {
  readonly digest: string;
  readonly kernelPath: string;
  readonly initrdPath: string;
  readonly rootPath: string;
  readonly pristinePath: string;
  readonly agentPath: string;
  readonly agentDigest: string;
}

export interface Accelerator {
  readonly name: "kvm" | "hvf" | "tcg";
  readonly reason: string;
}

export interface Hypervisor {
  readonly binary: string;
  readonly version: string;
}

export interface GoldenIdentity {
  readonly image: OpenedImage;
  readonly accelerator: Accelerator;
  readonly hypervisor: Hypervisor;
  readonly cpus: number;
  readonly memoryMib: number;
}

export interface StoredGolden {
  readonly ramPath: string;
  readonly statePath: string;
}

export interface GoldenDraft {
  readonly ramPath: string;
  readonly statePath: string;
  /** Makes it findable, with its marker last. */
  commit(): Promise<StoredGolden>;
  abort(): Promise<void>;
}

export interface GoldenStore {
  /** Null when there is none; throws Failure("checkpoint_corrupt") when what is there is not what was saved. */
  find(key: string): Promise<StoredGolden | null>;
  draft(key: string, identity: GoldenIdentity): Promise<GoldenDraft>;
  remove(key: string): Promise<void>;
  /** Removes the least recently used ones above the limits, never one of `keep`. */
  collect(limits: { countMax: number; bytesMax: number }, keep: ReadonlySet<string>): Promise<void>;
}

export interface SharedMemory {
  create(name: string, sizeBytes: number): number;
  copy(sourceFd: number, targetFd: number, sizeBytes: number): void;
  /** Afterwards nobody can change it, by any descriptor. Fails while somebody has it mapped writable. */
  seal(fd: number): void;
}
