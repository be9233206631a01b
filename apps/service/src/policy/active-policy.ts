import { join } from "node:path";
import { messageOf } from "@capsem/base";
import { ensureOwnFolder } from "@capsem/base/own-folder";
import { type PolicySnapshot, renderActivePolicy } from "@capsem/policy";
import type { Redactor } from "../boundary/parts.ts";
import { isMissing, writeFileAtomic } from "../home/atomic-file.ts";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { POLICY_TIMES } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { settledWithin } from "../owner/settled.ts";
import type { VmWatch } from "../vm/vm-watch.ts";
import type { PolicyHolder } from "./policy-holders.ts";

export interface ActivePolicyParts {
  readonly layout: HomeLayout;
  readonly uid: number;
  readonly log: ServiceLog;
  readonly snapshot: () => PolicySnapshot;
  /** A rule that was written by hand may name a secret. */
  readonly redactor: Pick<Redactor, "text">;
  /** Ids of the VMs that run. */
  readonly running: () => readonly string[];
}

/**
 * `vm/active_policy.toml` of each running VM: what is in force, for people. Nothing reads it back, so a disk that does
 * not take it stops no change and no VM.
 */
export class ActivePolicy implements PolicyHolder {
  readonly name = "active_policy.toml";
  readonly #parts: ActivePolicyParts;
  /** Of each VM: the write under way, and whether another must follow. */
  readonly #writes = new Map<string, { done: Promise<void>; isStale: boolean }>();
  /** What the file of each VM says. */
  readonly #written = new Map<string, PolicySnapshot>();
  #rendered: { readonly of: PolicySnapshot; readonly text: string } | null = null;

  constructor(parts: ActivePolicyParts) {
    this.#parts = parts;
  }

  /** A disk that hangs keeps nobody waiting: nothing is decided by these files, and they follow when it does. */
  async accept(): Promise<void> {
    const written = Promise.all(this.#parts.running().map((id) => this.write(id)));
    await settledWithin(written, POLICY_TIMES.activeWriteMs);
  }

  replace(): Promise<void> {
    return Promise.resolve();
  }

  /** Resolves when the file says what is in force, or the log says why it does not. For each VM that comes to run. */
  write(id: string): Promise<void> {
    const running = this.#writes.get(id);
    if (running !== undefined) {
      running.isStale = true;
      return running.done;
    }
    if (this.#written.get(id) === this.#parts.snapshot()) return Promise.resolve();
    const entry = { done: Promise.resolve(), isStale: false };
    this.#writes.set(id, entry);
    entry.done = this.#store(id, entry);
    return entry.done;
  }

  /** The VM is gone, with its folder. */
  forget(id: string): void {
    this.#written.delete(id);
  }

  async #store(id: string, entry: { isStale: boolean }): Promise<void> {
    try {
      do {
        entry.isStale = false;
        // The VM may have gone meanwhile, with its folder.
        if (!(await this.#storeOnce(id))) return;
      } while (entry.isStale);
    } finally {
      // In the turn of the last look: whoever asks from now on makes a write of its own.
      this.#writes.delete(id);
    }
  }

  /** False: there is no such folder. */
  async #storeOnce(id: string): Promise<boolean> {
    try {
      const folder = join(vmFolder(this.#parts.layout, id).folder, "vm");
      ensureOwnFolder(folder, this.#parts.uid);
      const of = this.#parts.snapshot();
      const { text } = this.#parts.redactor.text(this.#textOf(of));
      await writeFileAtomic(join(folder, "active_policy.toml"), text, false);
      this.#written.set(id, of);
    } catch (thrown) {
      if (isMissing(thrown)) return false;
      this.#parts.log("error", "cannot write a VM's policy", { vm_id: id, cause: messageOf(thrown) });
    }
    return true;
  }

  #textOf(of: PolicySnapshot): string {
    if (this.#rendered?.of !== of) this.#rendered = { of, text: renderActivePolicy(of) };
    return this.#rendered.text;
  }
}

/** A VM that comes to run gets its file at that moment. */
export function showingPolicy(watch: VmWatch, activePolicy: ActivePolicy): VmWatch {
  return {
    ...watch,
    changed(vm) {
      watch.changed(vm);
      if (vm.record.state === "running") void activePolicy.write(vm.id);
    },
    gone(vm, lastState) {
      activePolicy.forget(vm.id);
      watch.gone(vm, lastState);
    },
  };
}
