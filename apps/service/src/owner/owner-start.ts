import { mkdir, open } from "node:fs/promises";
import type { SpawnPlan } from "@capsem/api";
import type { Machinery } from "../machinery.ts";
import type { Powers } from "../powers.ts";
import { ownerFolder } from "./owner-launch.ts";
import { OwnerRun } from "./owner-run.ts";
import { ProcessRecord } from "./process-record.ts";
import type { UidSlots } from "./uid-slots.ts";

/** A file to open for the owner, or a descriptor that stays the caller's. */
export type Grant = { readonly path: string; readonly flags: "r" | "r+" | "w+" } | { readonly fd: number };
export type GrantName = Exclude<keyof SpawnPlan["descriptors"], "rpc" | "traffic">;

export interface OwnerStart {
  readonly plan: Omit<SpawnPlan, "descriptors" | "uid" | "launcher" | "allow_unconfined">;
  readonly grants: Partial<Readonly<Record<GrantName, Grant>>>;
  readonly processesPath: string;
  readonly onLogLine: (line: string) => void;
}

/** The first descriptor after stdin, stdout, stderr and rpc. */
const FIRST_DESCRIPTOR = 4;

/** Spawns owners. Every descriptor that it opens is closed here again once the child has its copy. */
export class OwnerStarter {
  readonly #powers: Powers;
  readonly #machinery: Machinery;
  readonly #uids: UidSlots;
  readonly #allowsUnconfined: () => boolean;

  constructor(powers: Powers, machinery: Machinery, uids: UidSlots, allowsUnconfined = () => false) {
    this.#powers = powers;
    this.#machinery = machinery;
    this.#uids = uids;
    this.#allowsUnconfined = allowsUnconfined;
  }

  async start(start: OwnerStart): Promise<OwnerRun> {
    const opened: { close(): Promise<void> }[] = [];
    const uid = this.#uids.take();
    let traffic: [number, number] | null = null;
    try {
      const given: [string, number][] = [];
      const openings = Object.entries(start.grants).map(async ([name, grant]): Promise<[string, number]> => {
        if ("fd" in grant) return [name, grant.fd];
        const file = await open(grant.path, grant.flags, 0o600);
        opened.push(file);
        return [name, file.fd];
      });
      // Made here: an owner may write in it, and not beside it.
      const made = mkdir(ownerFolder(start.plan.folder), { recursive: true, mode: 0o700 });
      // What is still being opened when one fails would not be closed again.
      await Promise.allSettled([...openings, made]);
      await made;
      given.push(...(await Promise.all(openings)));
      traffic = this.#machinery.socketPair();
      given.push(["traffic", traffic[1]]);
      const run = this.#spawn(start, uid, given, traffic[0]);
      this.#releaseAfter(run, uid, traffic[0]);
      return run;
    } catch (thrown) {
      this.#uids.release(uid);
      if (traffic !== null) this.#machinery.closeDescriptor(traffic[0]);
      throw thrown;
    } finally {
      if (traffic !== null) this.#machinery.closeDescriptor(traffic[1]);
      for (const file of opened) await file.close();
    }
  }

  #spawn(
    start: OwnerStart,
    uid: number | null,
    given: readonly [string, number][],
    laneFd: number,
  ): OwnerRun {
    const numbers = Object.fromEntries(given.map(([name], index) => [name, FIRST_DESCRIPTOR + index]));
    const record = new ProcessRecord(start.processesPath, this.#powers.processes);
    const plan: SpawnPlan = {
      ...start.plan,
      launcher: this.#machinery.launcher,
      uid,
      allow_unconfined: this.#allowsUnconfined(),
      descriptors: { ...numbers, rpc: 3 } as SpawnPlan["descriptors"],
    };
    const child = this.#powers.startOwner(
      plan,
      given.map(([, fd]) => fd),
    );
    const run = new OwnerRun({
      child,
      plan,
      laneFd,
      processes: this.#powers.processes,
      onLogLine: start.onLogLine,
      monotonicMs: this.#powers.monotonicMs,
      onProcess: (role, pid) => record.note(role, pid),
      recorded: () => record.settled(),
    });
    return run;
  }

  /** The traffic lane's host end is kept for a proxy; it and the user id live as long as the processes. */
  #releaseAfter(run: OwnerRun, uid: number | null, trafficFd: number): void {
    void run.gone.then(() => {
      this.#machinery.closeDescriptor(trafficFd);
      this.#uids.release(uid);
    });
  }
}
