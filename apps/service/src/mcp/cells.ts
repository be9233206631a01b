import { apiFailure, HOST_SCOPE } from "@capsem/api";
import { vmFactsOf } from "../boundary/vm-draft.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { Vm } from "../vm/vm.ts";
import type { VmWatch } from "../vm/vm-watch.ts";
import { Cell, type CellParts, type Lane } from "./cell.ts";

export type CellsParts = Omit<CellParts, "scope" | "vm" | "lane" | "onActivity"> & {
  readonly monotonicMs: () => number;
};

interface OfVm {
  readonly run: OwnerRun;
  readonly cell: Cell;
  /** As rules saw it when they were last told. */
  name: string | null;
}

/** A cell for each VM that runs, and the host's own. One without a call has no process. */
export class Cells {
  readonly #parts: CellsParts;
  readonly #ofVms = new Map<string, OfVm>();
  readonly #closing = new Set<Promise<void>>();
  readonly host: Cell;

  constructor(parts: CellsParts) {
    this.#parts = parts;
    this.host = new Cell({
      ...parts,
      scope: HOST_SCOPE,
      vm: () => null,
      lane: null,
      onActivity: () => undefined,
    });
  }

  /** Throws Failure "wrong_state" where the VM does not run. */
  ofVm(vm: Vm): Cell {
    const found = this.#ofVms.get(vm.id);
    if (found !== undefined && !found.run.isLost) return found.cell;
    throw apiFailure("wrong_state", `Cannot call a tool through VM "${vm.id}": it is ${vm.record.state}`);
  }

  list(): Cell[] {
    return [this.host, ...[...this.#ofVms.values()].map(({ cell }) => cell)];
  }

  serversChanged(): void {
    for (const cell of this.list()) cell.serversChanged();
  }

  /** A VM that comes to run has a cell until its owner is lost. */
  watching(watch: VmWatch): VmWatch {
    return {
      ...watch,
      changed: (vm) => {
        watch.changed(vm);
        this.#follow(vm);
      },
    };
  }

  async close(): Promise<void> {
    const open = [this.host, ...[...this.#ofVms.values()].map(({ cell }) => cell)];
    await Promise.allSettled([...open.map((cell) => cell.close()), ...this.#closing]);
  }

  #follow(vm: Vm): void {
    const { run } = vm;
    const known = this.#ofVms.get(vm.id);
    if (known !== undefined && known.run === run) this.#rename(vm, known);
    else if (run !== null && !run.isLost && vm.record.state === "running") this.#begin(vm, run);
  }

  #rename(vm: Vm, known: OfVm): void {
    if (known.name === vm.record.name) return;
    known.name = vm.record.name;
    known.cell.vmChanged();
  }

  #begin(vm: Vm, run: OwnerRun): void {
    const lane: Lane = {
      fd: () => (run.isLost ? null : run.laneFd),
      isOpen: () => run.isTrafficOpen && !run.isLost,
      open: async ({ marker, generation }) => {
        await run.call("traffic.open", { marker, generation });
      },
    };
    const cell = new Cell({
      ...this.#parts,
      scope: vm.id,
      vm: () => vmFactsOf(vm.record),
      lane,
      onActivity: () => {
        vm.lastActiveMs = this.#parts.monotonicMs();
      },
    });
    const ofVm: OfVm = { run, cell, name: vm.record.name };
    this.#ofVms.set(vm.id, ofVm);
    run.onTrafficOpen = () => cell.trafficOpened();
    void run.lost.then(() => this.#end(vm.id, ofVm));
    if (run.isTrafficOpen) cell.trafficOpened();
  }

  #end(id: string, ofVm: OfVm): void {
    if (this.#ofVms.get(id) === ofVm) this.#ofVms.delete(id);
    const closing = ofVm.cell.close().finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }
}
