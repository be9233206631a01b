import { Failure } from "@capsem/base";
import type { GoldenBook } from "../golden/golden-book.ts";
import type { LoadedGolden } from "../golden/golden-build.ts";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { TIMES, VM_LIMITS } from "../limits.ts";
import type { Accelerator, Hypervisor, Machinery, OpenedImage } from "../machinery.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { StartsOwners } from "../trouble/owner-watch.ts";

export interface LaunchRequest {
  readonly id: string;
  /** The image under its disk. */
  readonly imageDigest: string;
  readonly cpus: number;
  readonly memoryMib: number;
  /** A pool slot: prepared, then paused. */
  readonly pool: boolean;
  readonly onLogLine: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface Launched {
  readonly run: OwnerRun;
  /** The golden that it forks from, which may be closed by now; null for a cold boot. */
  readonly golden: LoadedGolden | null;
  readonly readyTimeoutMs: number;
}

/** What every VM shares: opened once, and again after a failure. */
export interface Ground {
  readonly image: OpenedImage;
  readonly accelerator: Accelerator;
  readonly hypervisor: Hypervisor;
}

/** Brings owners up: from a golden where one is to be had, else by a cold boot. */
export class Launcher {
  readonly #layout: HomeLayout;
  readonly #machinery: Machinery;
  readonly #goldens: GoldenBook;
  readonly #starter: StartsOwners;
  #ground: Promise<Ground> | null = null;
  /** The last opened ground, for status. */
  known: Ground | null = null;

  constructor(layout: HomeLayout, machinery: Machinery, goldens: GoldenBook, starter: StartsOwners) {
    this.#layout = layout;
    this.#machinery = machinery;
    this.#goldens = goldens;
    this.#starter = starter;
  }

  ground(): Promise<Ground> {
    this.#ground ??= this.#openGround().catch((thrown: unknown) => {
      this.#ground = null;
      throw thrown;
    });
    return this.#ground;
  }

  createDisk(image: OpenedImage, id: string): Promise<void> {
    return this.#machinery.createDisk(image.pristinePath, vmFolder(this.#layout, id).disk);
  }

  invalidateGolden(golden: LoadedGolden): Promise<void> {
    return this.#goldens.invalidate(golden);
  }

  /** The folder and the disk of `id` exist. The run is the caller's to kill. */
  async launch(request: LaunchRequest): Promise<Launched> {
    const ground = await this.#groundOf(request.imageDigest);
    const { cpus, memoryMib } = request;
    const held = await this.#goldens.hold({ ...ground, cpus, memoryMib }, request.signal);
    const golden = held?.golden ?? null;
    const readyTimeoutMs = golden === null ? TIMES.coldStartTimeoutMs : TIMES.startTimeoutMs;
    try {
      if (request.signal.aborted) throw new Failure("cancelled", "Cannot start the VM: cancelled");
      return { run: await this.#start(request, ground, golden), golden, readyTimeoutMs };
    } finally {
      // The owner has descriptors of its own now.
      await held?.release();
    }
  }

  #start(request: LaunchRequest, ground: Ground, golden: LoadedGolden | null): Promise<OwnerRun> {
    const { folder, disk, processes } = vmFolder(this.#layout, request.id);
    const { image, accelerator, hypervisor } = ground;
    return this.#starter.start({
      plan: {
        kind: golden === null ? "cold" : "fork",
        vm_id: request.id,
        cpus: request.cpus,
        memory_mib: request.memoryMib,
        accelerator: accelerator.name,
        qemu_binary: hypervisor.binary,
        folder,
        pool: request.pool,
        disk_capacity_bytes: VM_LIMITS.diskCapacityBytes,
      },
      grants: {
        kernel: { path: image.kernelPath, flags: "r" },
        initrd: { path: image.initrdPath, flags: "r" },
        root: { path: image.rootPath, flags: "r" },
        agent: { path: image.agentPath, flags: "r" },
        disk: { path: disk, flags: "r+" },
        ...(golden === null ? {} : goldenGrants(golden)),
      },
      processesPath: processes,
      onLogLine: request.onLogLine,
    });
  }

  /** A changed lower layer is never mounted under an old disk: a VM keeps the image that it was made on. */
  async #groundOf(imageDigest: string): Promise<Ground> {
    const ground = await this.ground();
    if (ground.image.digest === imageDigest) return ground;
    return { ...ground, image: await this.#machinery.reopenImage(imageDigest, ground.image) };
  }

  async #openGround(): Promise<Ground> {
    const [image, hypervisor] = await Promise.all([
      this.#machinery.openImage(),
      this.#machinery.findHypervisor(),
    ]);
    const accelerator = await this.#machinery.probeAccelerator(hypervisor, image);
    this.known = { image, accelerator, hypervisor };
    return this.known;
  }
}

/** The state is opened anew through the kept descriptor: two forks must not share one file position. */
function goldenGrants(golden: LoadedGolden) {
  return {
    memory: { fd: golden.memoryFd },
    state: { path: `/proc/self/fd/${golden.state.fd}`, flags: "r" },
  } as const;
}
