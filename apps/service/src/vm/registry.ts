import { mkdir, readdir } from "node:fs/promises";
import { apiFailure } from "@capsem/api";
import { VM_ID_PATTERN } from "@capsem/base";
import { readJsonFile, writeFileAtomic } from "../home/atomic-file.ts";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { type VmRecord, vmRecord } from "./record.ts";
import type { Vm } from "./vm.ts";

export type WriteRecord = (path: string, text: string) => Promise<void>;

/** All VMs by id and name, and their files: one atomic JSON file each. Memory decides, the file follows. */
export class Registry {
  readonly #layout: HomeLayout;
  readonly #write: WriteRecord;
  readonly #vms = new Map<string, Vm>();
  readonly #names = new Map<string, string>();
  /** The write under way of each VM and whether another must follow it. */
  readonly #writes = new Map<string, { running: Promise<void>; next: Promise<void> | null }>();

  constructor(layout: HomeLayout, write: WriteRecord = writeFileAtomic) {
    this.#layout = layout;
    this.#write = write;
  }

  list(): Vm[] {
    return [...this.#vms.values()];
  }

  get(id: string): Vm {
    const vm = this.#vms.get(id);
    if (vm === undefined) throw apiFailure("vm_not_found", `Cannot find VM "${id}": no such VM`);
    return vm;
  }

  has(id: string): boolean {
    return this.#vms.has(id);
  }

  /** Reserves id and name at once. Throws name_taken. The file comes with `save`. */
  add(vm: Vm): void {
    this.checkName(vm.record.name);
    this.#vms.set(vm.id, vm);
    if (vm.record.name !== null) this.#names.set(vm.record.name, vm.id);
  }

  /** Null takes the name away again. */
  rename(vm: Vm, name: string | null): void {
    if (vm.record.name === name) return;
    this.checkName(name);
    if (vm.record.name !== null) this.#names.delete(vm.record.name);
    if (name !== null) this.#names.set(name, vm.id);
    vm.record = { ...vm.record, name };
  }

  isNameFree(name: string | null): boolean {
    return name === null || !this.#names.has(name);
  }

  checkName(name: string | null): void {
    if (!this.isNameFree(name)) {
      throw apiFailure("name_taken", `Cannot name a VM "${name}": the name is taken`);
    }
  }

  /** Forgets the VM; its files are the caller's. */
  delete(vm: Vm): void {
    this.#vms.delete(vm.id);
    if (vm.record.name !== null) this.#names.delete(vm.record.name);
  }

  /** Resolves when a state at least as new as this moment's is on the disk. Writes of one VM never overlap. */
  async save(vm: Vm): Promise<void> {
    if (!vm.isRecordReadable) return;
    await this.#save(vm);
  }

  #save(vm: Vm): Promise<void> {
    const slot = this.#writes.get(vm.id);
    if (slot === undefined) {
      const running = this.#store(vm).finally(() => this.#wrote(vm.id));
      this.#writes.set(vm.id, { running, next: null });
      return running;
    }
    slot.next ??= slot.running.then(
      () => this.#save(vm),
      () => this.#save(vm),
    );
    return slot.next;
  }

  /** Resolves when no write is under way: the folder may go then. */
  async settle(vm: Vm): Promise<void> {
    for (let slot = this.#writes.get(vm.id); slot !== undefined; slot = this.#writes.get(vm.id)) {
      await Promise.allSettled([slot.next ?? slot.running]);
    }
  }

  #wrote(id: string): void {
    this.#writes.delete(id);
  }

  async #store(vm: Vm): Promise<void> {
    const { folder, record } = vmFolder(this.#layout, vm.id);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await this.#write(record, `${JSON.stringify(vm.record)}\n`);
  }
}

export interface FoundFolder {
  readonly id: string;
  /** Null: no record, or one that cannot be read. */
  readonly record: VmRecord | null;
  readonly problem: string | null;
}

/** What the disk holds at a start. Never throws for one bad folder. */
export async function readVmFolders(layout: HomeLayout): Promise<FoundFolder[]> {
  const names = (await readdir(layout.vms)).filter((name) => VM_ID_PATTERN.test(name)).sort();
  return Promise.all(names.map((id) => readFolder(layout, id)));
}

async function readFolder(layout: HomeLayout, id: string): Promise<FoundFolder> {
  try {
    const found = await readJsonFile(vmFolder(layout, id).record);
    if (found === null) return { id, record: null, problem: null };
    const parsed = vmRecord.safeParse(found);
    if (!parsed.success) return { id, record: null, problem: "vm.json has another shape" };
    if (parsed.data.id !== id) return { id, record: null, problem: "vm.json has another id" };
    return { id, record: parsed.data, problem: null };
  } catch (thrown) {
    return { id, record: null, problem: thrown instanceof Error ? thrown.message : String(thrown) };
  }
}
