import { apiFailure, type CreateRequest, type VmReason, type VmState } from "@capsem/api";
import { assert, Failure, ignore, messageOf, newId } from "@capsem/base";
import { type UnaskedEnd, whileUnasked } from "../boundary/unasked-end.ts";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { TIMES } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { VmLogs } from "../log/vm-logs.ts";
import { watchHealth } from "../owner/health-watch.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { settled, settledWithin } from "../owner/settled.ts";
import type { Pool, Slot } from "../pool/pool.ts";
import type { Powers } from "../powers.ts";
import { bringUp, StartFailure, startNotWanted } from "./bring-up.ts";
import { bringUpChecked, type CheckLedger } from "./checked-start.ts";
import type { CreatePlan } from "./create-plan.ts";
import type { Launcher } from "./launch.ts";
import { AFTER_LOSS, isLegalMove, kindOfVm } from "./lifecycle-table.ts";
import type { Quota, Shape } from "./quota.ts";
import type { VmRecord } from "./record.ts";
import type { Registry } from "./registry.ts";
import { type RemovePath, removeFilesOf } from "./remove-files.ts";
import { Vm } from "./vm.ts";
import { type VmWatch, whyOf } from "./vm-watch.ts";

export interface LifecycleParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly registry: Registry;
  readonly quota: Quota;
  readonly launcher: Launcher;
  readonly pool: Pool;
  readonly log: ServiceLog;
  readonly watch: VmWatch;
  /** Told of each end that nobody asked for, and which the boundary has not seen. */
  readonly unasked: UnaskedEnd;
  readonly checkLedger: CheckLedger;
  /** For fault injection. */
  readonly removePath?: RemovePath;
}

type RecordChange = Partial<Pick<VmRecord, "reason" | "started_at" | "failed_at">>;

export interface CreateOptions {
  /** The VM has its id and is listed; nothing of it has started. */
  readonly onReserved?: (vm: Vm) => void;
  /** Its abort, while the VM starts, ends the start. */
  readonly hold?: AbortSignal;
  /** Of `plan`, for the same request. */
  readonly plan?: CreatePlan;
}

/** The one driver of VM states: every move is made here, by the table. */
export class Lifecycle {
  readonly #parts: LifecycleParts;
  #isClosing = false;

  constructor(parts: LifecycleParts) {
    this.#parts = parts;
  }

  /** Refuses what cannot be created now, and says which VM it would be. Nothing is made or counted. */
  async plan(request: CreateRequest): Promise<CreatePlan> {
    const { pool, powers, quota } = this.#parts;
    const shape = quota.shapeOf(request);
    const [{ image }] = await Promise.all([this.#ground(), quota.checkDisk()]);
    this.#checkCreate(request, shape);
    const slot = pool.keep(shape);
    return {
      id: slot?.id ?? newId("vm", powers.random),
      image: image.digest,
      slot,
      release() {
        if (slot !== null) pool.letGo(slot);
      },
    };
  }

  /** Running when it resolves. When it rejects nothing of the VM is left, and its name is free. */
  create(request: CreateRequest, options: CreateOptions = {}): Promise<Vm> {
    return this.#parts.pool.whileStarting(() => this.#create(request, options));
  }

  async #create(request: CreateRequest, { onReserved, hold, plan }: CreateOptions): Promise<Vm> {
    const { registry, quota, pool, powers } = this.#parts;
    const shape = quota.shapeOf(request);
    const [{ image }] = await Promise.all([this.#ground(), quota.checkDisk()]);
    // From here to `add` nothing waits: two creates cannot pass the same check.
    this.#checkCreate(request, shape);
    const slot = pool.claim(shape, plan?.slot);
    const id = plan?.id ?? slot?.id ?? newId("vm", powers.random);
    const vm = new Vm(this.#newRecord(id, request, shape, image.digest), powers.monotonicMs());
    registry.add(vm);
    this.#parts.watch.changed(vm);
    // A planned slot that died meanwhile had this id: its folder goes before the VM's comes.
    const remains = slot === null ? (plan?.slot?.discarding ?? null) : null;
    this.#track(vm, async (signal) => {
      await remains;
      await this.#firstStart(vm, slot, signal);
    });
    onReserved?.(vm);
    // Whoever holds a VM and leaves while it starts does not wait for it to run.
    const giveUp = () => vm.startAbort?.abort();
    hold?.addEventListener("abort", giveUp, { once: true });
    if (hold?.aborted) giveUp();
    try {
      await vm.starting;
      return vm;
    } catch (thrown) {
      this.#parts.log("error", "create failed", {
        vm_id: id,
        cause: messageOf(thrown),
        detail: detailOf(thrown),
      });
      this.#failed(vm, thrown);
      await this.remove(vm);
      throw thrown;
    } finally {
      hold?.removeEventListener("abort", giveUp);
    }
  }

  async start(vm: Vm): Promise<void> {
    if (vm.starting !== null) return vm.starting;
    this.#checkStartable(vm);
    await this.#parts.pool.whileStarting(() => this.#start(vm));
  }

  async #start(vm: Vm): Promise<void> {
    const { registry, quota, pool } = this.#parts;
    await Promise.all([this.#ground(), quota.checkDisk()]);
    if (vm.starting !== null) return vm.starting;
    this.#checkStartable(vm);
    this.#refuseWhenClosing();
    quota.checkRunning(registry.list(), { cpus: vm.record.cpus, memoryMib: vm.record.memory_mib });
    pool.giveWay();
    ignore(this.#move(vm, "starting", { reason: null, failed_at: null }));
    this.#track(vm, (signal) => this.#laterStart(vm, signal));
    return vm.starting ?? undefined;
  }

  /** Retained: stopped when it resolves. Temporary: gone. */
  stop(vm: Vm, reason: VmReason | null = null): Promise<void> {
    if (vm.stopping !== null) return vm.stopping;
    const { state } = vm.record;
    if (state !== "running" && state !== "starting") {
      throw apiFailure("wrong_state", `Cannot stop VM "${vm.id}": it is ${state}`);
    }
    vm.stopping = this.#stop(vm, reason).finally(() => {
      vm.stopping = null;
    });
    return vm.stopping;
  }

  async restart(vm: Vm): Promise<void> {
    if (!vm.isRetained) throw apiFailure("wrong_state", `Cannot restart VM "${vm.id}": it is temporary`);
    if (vm.record.state === "running") await this.stop(vm);
    await this.start(vm);
  }

  /**
   * Works in every state and is final: processes, files, then the record. A second caller joins. `unasked`: why it
   * goes, where nobody asked for that.
   */
  remove(vm: Vm, unasked?: string): Promise<void> {
    if (unasked !== undefined && vm.removing === null) {
      return whileUnasked(this.#parts.unasked, [vm, "delete", unasked], () => this.remove(vm));
    }
    vm.removing ??= this.#remove(vm).finally(() => {
      vm.removing = null;
    });
    return vm.removing;
  }

  /** The quota stop: a temporary VM is kept as failed for a while, so that its user learns why. */
  async end(vm: Vm, reason: VmReason): Promise<void> {
    if (vm.record.state !== "running") return;
    await whileUnasked(this.#parts.unasked, [vm, "stop", reason], () => this.#end(vm, reason));
  }

  async #end(vm: Vm, reason: VmReason): Promise<void> {
    if (vm.isRetained || reason === "idle" || reason === "lifetime") return this.stop(vm, reason);
    const { run } = vm;
    vm.run = null;
    // A full disk may not take the record: nothing here waits for it.
    ignore(this.#moveToFailed(vm, reason));
    this.#parts.watch.failed(vm, reason, `allocated ${vm.diskAllocatedBytes} bytes of disk`);
    vm.ended.resolve(reason);
    // Whoever deletes it meanwhile waits for its processes too.
    vm.dying = run?.kill() ?? null;
    await vm.dying;
  }

  rename(vm: Vm, name: string): Promise<void> {
    return this.#inTurn(vm, () => this.#rename(vm, name));
  }

  async #rename(vm: Vm, name: string): Promise<void> {
    if (!vm.isRecordReadable)
      throw apiFailure("wrong_state", `Cannot rename VM "${vm.id}": its record cannot be read`);
    if (!vm.isRetained) throw apiFailure("wrong_state", `Cannot rename VM "${vm.id}": it is temporary`);
    await this.#changeName(vm, name);
  }

  persist(vm: Vm, name: string): Promise<void> {
    return this.#inTurn(vm, () => this.#persist(vm, name));
  }

  async #persist(vm: Vm, name: string): Promise<void> {
    if (vm.isRetained)
      throw apiFailure("wrong_state", `Cannot persist VM "${vm.id}": it is retained already`);
    if (vm.record.state !== "running") {
      throw apiFailure("wrong_state", `Cannot persist VM "${vm.id}": it is ${vm.record.state}`);
    }
    this.#parts.quota.checkRetained(this.#parts.registry.list());
    vm.persisting = this.#changeName(vm, name).finally(() => {
      vm.persisting = null;
    });
    await vm.persisting;
  }

  /** All VMs end in order: retained ones stopped, temporary ones gone. No start is taken any more. */
  async close(): Promise<void> {
    this.#isClosing = true;
    await Promise.allSettled(
      this.#parts.registry.list().map(async (vm) => {
        const { state } = vm.record;
        if (state === "deleting") await this.remove(vm);
        else if (state === "creating" || (!vm.isRetained && state !== "failed")) {
          await this.remove(vm, "service_stop");
        } else if (state === "running" || state === "starting") {
          await whileUnasked(this.#parts.unasked, [vm, "stop", "service_stop"], () => this.stop(vm));
        } else await vm.stopping;
      }),
    );
    // One that failed just now is not removed: the next service must find it so.
    await Promise.all(this.#parts.registry.list().map((vm) => this.#parts.registry.settle(vm)));
  }

  #checkCreate(request: CreateRequest, shape: Shape): void {
    const { registry, quota } = this.#parts;
    this.#refuseWhenClosing();
    quota.checkRunning(registry.list(), shape);
    if (request.name !== undefined) quota.checkRetained(registry.list());
    registry.checkName(request.name ?? null);
  }

  #track(vm: Vm, start: (signal: AbortSignal) => Promise<void>): void {
    const abort = new AbortController();
    vm.startAbort = abort;
    vm.starting = start(abort.signal).finally(() => {
      vm.starting = null;
      vm.startAbort = null;
    });
    ignore(vm.starting);
  }

  async #firstStart(vm: Vm, slot: Slot | null, signal: AbortSignal): Promise<void> {
    const { launcher, layout } = this.#parts;
    if (slot !== null) {
      vm.logs = slot.logs;
      vm.run = slot.run;
    } else {
      vm.logs = await VmLogs.open(vmFolder(layout, vm.id).logs);
      const { image } = await launcher.ground();
      await launcher.createDisk(image, vm.id);
      if (signal.aborted) throw startNotWanted(vm);
    }
    // A service that dies before it has a record leaves a folder that the next one removes, as it does a slot's.
    const saved = this.#move(vm, "starting");
    // Record and claim go on together; both must hold before the VM runs, and neither is left under way.
    const [brought, kept] = await Promise.allSettled([bringUp(this.#parts, vm, slot, signal), saved]);
    if (brought.status === "rejected") throw brought.reason;
    if (kept.status === "rejected") {
      vm.run = null;
      await brought.value.kill();
      throw kept.reason;
    }
    await this.#run(vm, brought.value);
  }

  async #laterStart(vm: Vm, signal: AbortSignal): Promise<void> {
    try {
      await vm.dying;
      vm.logs ??= await VmLogs.open(vmFolder(this.#parts.layout, vm.id).logs);
      await this.#run(vm, await bringUpChecked(this.#parts, vm, signal));
    } catch (thrown) {
      await vm.logs?.release();
      if (vm.record.state === "starting") {
        const reason = thrown instanceof StartFailure ? thrown.reason : null;
        this.#failed(vm, thrown);
        await this.#moveToFailed(vm, reason);
      }
      throw thrown;
    }
  }

  async #run(vm: Vm, run: OwnerRun): Promise<void> {
    if (vm.record.state !== "starting" || run.isLost) {
      vm.run = null;
      await run.kill();
      throw apiFailure("vm_gone", `Cannot start VM "${vm.id}": it ended meanwhile`);
    }
    vm.lastActiveMs = this.#parts.powers.monotonicMs();
    vm.startedMs = vm.lastActiveMs;
    const isNew = vm.record.started_at === null;
    // A restart treats starting and running alike: nobody waits for this write.
    ignore(this.#move(vm, "running", { started_at: this.#nowText(), reason: null }));
    if (isNew) this.#parts.watch.created(vm);
    watchHealth(run, () => {
      this.#parts.log("warning", "health changed", { vm_id: vm.id, ...run.health });
      if (vm.run === run) this.#parts.watch.changed(vm);
    });
    void run.lost.then((end) => this.#onLost(vm, run, end.reason, end.detail));
  }

  #onLost(vm: Vm, run: OwnerRun, reason: VmReason | null, detail: string): void {
    vm.dying = run.gone.then(() => vm.logs?.release());
    if (vm.run !== run || vm.record.state !== "running") return;
    vm.run = null;
    this.#parts.log("warning", "VM lost", { vm_id: vm.id, reason, detail });
    const why = reason ?? "owner_lost";
    // As failed it is right either way: it starts again where its name holds, and goes after a while where not.
    const isKept = AFTER_LOSS[kindOfVm(vm.record)] === "stopped" && vm.persisting === null;
    ignore(
      isKept ? this.#move(vm, "stopped", { reason: why, failed_at: null }) : this.#moveToFailed(vm, why),
    );
    this.#parts.watch.failed(vm, why, detail);
    this.#parts.unasked(vm, "stop", why, "done");
    vm.ended.resolve(why);
  }

  async #stop(vm: Vm, reason: VmReason | null): Promise<void> {
    // A temporary VM has no later moment at which its end could say why.
    const saved = this.#move(vm, "stopping", { reason });
    ignore(saved);
    vm.startAbort?.abort();
    await settled(vm.starting);
    const { run } = vm;
    const isForced = run !== null && !(await this.#stopInOrder(run));
    await vm.dying;
    await settled(vm.persisting);
    if (vm.record.state !== "stopping") return settled(vm.removing);
    vm.run = null;
    vm.ended.resolve(reason);
    if (!vm.isRetained) return this.remove(vm);
    await this.#move(vm, "stopped", { reason: reason ?? (isForced ? "stop_forced" : null) });
  }

  /** False when it had to be forced. */
  async #stopInOrder(run: OwnerRun): Promise<boolean> {
    const deadline = this.#parts.powers.monotonicMs() + TIMES.stopTimeoutMs;
    let isOrderly = false;
    try {
      await run.call("stop", { forced: false }, { timeoutMs: TIMES.stopTimeoutMs });
      const leftMs = Math.max(0, deadline - this.#parts.powers.monotonicMs());
      isOrderly = await settledWithin(run.gone, leftMs);
    } catch (thrown) {
      this.#parts.log("warning", "stop had to be forced", { vm_id: run.vmId, cause: messageOf(thrown) });
    }
    await run.kill();
    return isOrderly;
  }

  async #remove(vm: Vm): Promise<void> {
    const { log, registry, watch } = this.#parts;
    const lastState = vm.record.state;
    if (vm.record.state !== "deleting") {
      // The files go even when the disk does not take this: a restart finishes from any state.
      await this.#move(vm, "deleting").catch((thrown: unknown) => {
        log("error", "cannot record a deletion", { vm_id: vm.id, cause: messageOf(thrown) });
      });
    }
    vm.startAbort?.abort();
    const { run } = vm;
    vm.run = null;
    await Promise.all([run?.kill(), settled(vm.starting), vm.dying]);
    await vm.logs?.close();
    vm.logs = null;
    await registry.settle(vm);
    await removeFilesOf(this.#parts, vm.id);
    assert(isLegalMove(vm.record.state, "gone"), "a VM is deleted before it is gone");
    registry.delete(vm);
    watch.gone(vm, lastState);
    vm.ended.resolve(null);
    log("info", "VM removed", { vm_id: vm.id });
  }

  /** Names of one VM change one after the other: each goes back where the disk does not take it. */
  #inTurn(vm: Vm, work: () => Promise<void>): Promise<void> {
    vm.renaming = settled(vm.renaming).then(work);
    return vm.renaming;
  }

  async #changeName(vm: Vm, name: string): Promise<void> {
    const { registry } = this.#parts;
    const before = vm.record.name;
    if (vm.record.state === "deleting") {
      throw apiFailure("wrong_state", `Cannot rename VM "${vm.id}": it is being deleted`);
    }
    registry.rename(vm, name);
    try {
      await registry.save(vm);
    } catch (thrown) {
      registry.rename(vm, before);
      // A change of state may have been written meanwhile, with the name that does not hold.
      if (registry.has(vm.id) && (vm.record.state as VmState) !== "deleting") ignore(registry.save(vm));
      throw thrown;
    }
    this.#parts.watch.changed(vm);
  }

  /** A client that left while its VM started is no failure. */
  #failed(vm: Vm, thrown: unknown): void {
    if (thrown instanceof Failure && thrown.kind === "cancelled") return;
    const { why, detail } = whyOf(thrown);
    this.#parts.watch.failed(vm, why, detail);
  }

  #moveToFailed(vm: Vm, reason: VmReason | null): Promise<void> {
    vm.failedMs = this.#parts.powers.monotonicMs();
    return this.#move(vm, "failed", { reason, failed_at: this.#nowText() });
  }

  /** In memory at once; resolves when the record is on the disk. */
  async #move(vm: Vm, to: VmState, change: RecordChange = {}): Promise<void> {
    const from = vm.record.state;
    assert(isLegalMove(from, to), `a VM that is ${from} cannot become ${to}`);
    vm.record = { ...vm.record, ...change, state: to };
    this.#parts.log("info", "VM moved", { vm_id: vm.id, from, to, reason: vm.record.reason });
    this.#parts.watch.changed(vm);
    await this.#parts.registry.save(vm);
  }

  #checkStartable(vm: Vm): void {
    if (!vm.isRecordReadable)
      throw apiFailure("wrong_state", `Cannot start VM "${vm.id}": its record cannot be read`);
    const { state } = vm.record;
    if (!vm.isRetained || (state !== "stopped" && state !== "failed")) {
      const kind = vm.isRetained ? "" : " and temporary";
      throw apiFailure("wrong_state", `Cannot start VM "${vm.id}": it is ${state}${kind}`);
    }
  }

  async #ground() {
    try {
      return await this.#parts.launcher.ground();
    } catch (thrown) {
      throw apiFailure("start_failed", `Cannot start a VM: ${messageOf(thrown)}`, {
        cause: thrown,
        detail: detailOf(thrown) ?? "",
      });
    }
  }

  #refuseWhenClosing(): void {
    if (this.#isClosing) throw apiFailure("unavailable", "Cannot start a VM: the service is stopping");
  }

  #newRecord(id: string, request: CreateRequest, shape: Shape, image: string): VmRecord {
    return {
      schema: 1,
      id,
      name: request.name ?? null,
      state: "creating",
      reason: null,
      cpus: shape.cpus,
      memory_mib: shape.memoryMib,
      created_at: this.#nowText(),
      started_at: null,
      failed_at: null,
      image,
      env: request.env ?? {},
    };
  }

  #nowText(): string {
    return new Date(this.#parts.powers.nowMs()).toISOString();
  }
}

function detailOf(thrown: unknown): string | undefined {
  return thrown instanceof Failure ? thrown.detail : undefined;
}
