import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { apiFailure, type CreateRequest, checkEnv, type ServiceEvent, type VmInfo } from "@capsem/api";
import { NAME_PATTERN, newId } from "@capsem/base";
import type { FixtureJob } from "./fixture-job.ts";
import { FixtureLedgers } from "./fixture-ledger.ts";
import { FixtureMcp } from "./fixture-mcp.ts";
import { type FixtureCaller, FixturePolicy } from "./fixture-policy.ts";

export interface FixtureVm {
  info: VmInfo;
  readonly env: Record<string, string>;
  /** Stands in for /workspace. */
  readonly folder: string;
  readonly jobs: Map<string, FixtureJob>;
  onGone: (() => void) | null;
}

export const FIXTURE_LIMITS = { running_max: 8, retained_max: 32, memory_gib_max: 4, cpus_max: 2 } as const;

/** VMs that are folders of this host: enough to test a client, nothing of a VM. */
export class FixtureState {
  readonly vms = new Map<string, FixtureVm>();
  readonly ledgers = new FixtureLedgers();
  readonly mcp = new FixtureMcp();
  readonly policy = new FixturePolicy((ask) =>
    this.tell({ type: "ask", seq: 0, time: "2025-01-02T03:04:09.000Z", ask }),
  );
  readonly folder: string;
  readonly #followers = new Set<(event: ServiceEvent) => void>();
  #seq = 0;

  constructor(folder: string) {
    this.folder = folder;
  }

  /** `hello` at once, then what happens, until the returned function is called. */
  follow(follower: (event: ServiceEvent) => void): () => void {
    const vms = [...this.vms.values()].map((vm) => vm.info);
    const asks = this.policy.pending;
    follower({ type: "hello", seq: this.#seq, service_started_at: "2025-01-02T03:04:05.000Z", vms, asks });
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }

  get followerCount(): number {
    return this.#followers.size;
  }

  /** Its number is given here. */
  tell(event: ServiceEvent): void {
    this.#seq += 1;
    for (const follower of this.#followers) follower({ ...event, seq: this.#seq });
  }

  create(request: CreateRequest): FixtureVm {
    if (request.name !== undefined) this.checkName(request.name);
    checkShape(request);
    const running = [...this.vms.values()].filter((vm) => vm.info.state === "running").length;
    if (running >= FIXTURE_LIMITS.running_max)
      throw apiFailure("quota", `Cannot start a VM: ${running} run, limit ${FIXTURE_LIMITS.running_max}`);
    const id = newId("vm", (bytes) => randomBytes(bytes));
    const folder = join(this.folder, id);
    mkdirSync(folder, { recursive: true });
    const env = request.env ?? {};
    const info: VmInfo = {
      id,
      name: request.name ?? null,
      state: "running",
      reason: null,
      health: { owner: "ok", guest: "ok" },
      cpus: request.cpus ?? 1,
      memory_gib: request.memory_gib ?? 0.5,
      created_at: "2025-01-02T03:04:05.000Z",
      started_at: "2025-01-02T03:04:06.000Z",
      image: "sha256:fixture",
      env_names: Object.keys(env),
      disk: { allocated_bytes: 1_048_576, allocated_bytes_max: 10_737_418_240 },
    };
    const vm: FixtureVm = { info, env, folder, jobs: new Map(), onGone: null };
    this.vms.set(id, vm);
    this.ledgers.open(id, info.name);
    // A test breaks one by this name.
    if (info.name === "broken") this.ledgers.get(id).isBroken = true;
    this.tell({ type: "vm", seq: 0, time: "2025-01-02T03:04:06.000Z", vm: info });
    return vm;
  }

  checkName(name: string): void {
    if (!NAME_PATTERN.test(name)) throw apiFailure("invalid_input", `Cannot use name "${name}"`);
    for (const vm of this.vms.values())
      if (vm.info.name === name)
        throw apiFailure("name_taken", `Cannot use name "${name}": ${vm.info.id} has it`);
  }

  get(id: string): FixtureVm {
    const vm = this.vms.get(id);
    if (vm === undefined) throw apiFailure("vm_not_found", `Cannot find VM ${id}: it does not exist`);
    return vm;
  }

  /** Judges a command, records it, and does it when it may be done. */
  async exec<T>(vm: FixtureVm, command: string, caller: FixtureCaller, work: () => T): Promise<T> {
    const decision = this.policy.decide(command);
    const act = { command, ...caller, decision, outcome: null, exitCode: null };
    const row = this.ledgers.append(vm.info.id, act);
    try {
      await this.policy.admit(decision, vm.info, command, caller);
    } catch (thrown) {
      row.outcome = decision.action === "block" ? "blocked" : "denied";
      throw thrown;
    }
    const done = work();
    row.outcome = "done";
    row.exitCode = 0;
    return done;
  }

  delete(id: string): void {
    const vm = this.vms.get(id);
    if (vm === undefined) return;
    this.vms.delete(id);
    this.ledgers.close(id);
    for (const job of vm.jobs.values()) job.kill(9);
    rmSync(vm.folder, { recursive: true, force: true });
    vm.onGone?.();
    const { state, reason } = vm.info;
    this.tell({
      type: "vm_gone",
      seq: 0,
      time: "2025-01-02T03:04:10.000Z",
      vm_id: id,
      last_state: state,
      reason,
    });
  }

  clear(): void {
    for (const id of [...this.vms.keys()]) this.delete(id);
  }
}

function checkShape({ cpus = 1, memory_gib: memoryGib = 0.5, env = {} }: CreateRequest): void {
  const { cpus_max: cpusMax, memory_gib_max: memoryGibMax } = FIXTURE_LIMITS;
  if (cpus > cpusMax)
    throw apiFailure("invalid_input", `Cannot create a VM: ${cpus} cpus asked, limit ${cpusMax}`);
  if (memoryGib > memoryGibMax)
    throw apiFailure("invalid_input", `Cannot create a VM: ${memoryGib} GiB asked, limit ${memoryGibMax}`);
  const problem = checkEnv(env);
  if (problem !== null) throw apiFailure("invalid_input", `Cannot set the environment: ${problem}`);
}
