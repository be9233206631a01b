import type { OwnerParams, OwnerResult, SpawnPlan, VmReason } from "@capsem/api";
import { type Deferred, defer, Failure, ignore, messageOf } from "@capsem/base";
import type { Peer } from "@capsem/rpc";
import type { HypervisorEnd } from "@capsem/vmm";
import { Machine } from "./machine.ts";
import type { OwnerLife } from "./methods.ts";
import type { OwnerPowers } from "./powers.ts";

/**
 * The life of one owner: up, ready, claimed, ended. Its own end is the VM's end, and the other way round; the
 * service's end is both.
 */
export class Owner implements OwnerLife {
  readonly #plan: SpawnPlan;
  readonly #powers: OwnerPowers;
  #machine: Machine | null = null;
  /** Settled when the VM may be claimed, or never will be. */
  readonly #up: Deferred<void> = defer();
  #isClaimed = false;

  constructor(plan: SpawnPlan, powers: OwnerPowers) {
    this.#plan = plan;
    this.#powers = powers;
    ignore(this.#up.promise);
  }

  machine(): Machine {
    if (this.#machine === null) throw new Failure("wrong_state", "Cannot reach the VM: it is still starting");
    return this.#machine;
  }

  /** Runs until the VM has ended; the result is why, or null when it was asked for. */
  async run(peer: Peer): Promise<{ reason: VmReason | null; detail: string }> {
    void peer.ended.then(() => this.#machine?.kill());
    try {
      this.#machine = await Machine.start(this.#plan, this.#powers);
      await Promise.race([this.#bringUp(this.#machine, peer), this.#machine.ended]);
      const end = await this.#machine.ended;
      this.#up.reject(new Failure("guest_lost", "Cannot start the VM: it ended"));
      if (this.#machine.ending) return { reason: null, detail: "" };
      const reason = this.#machine.isAgentLost ? "guest_agent_lost" : endReason(end);
      return { reason, detail: describeEnd(end) };
    } catch (cause) {
      this.#up.reject(cause);
      this.#machine?.kill();
      await this.#machine?.ended;
      return { reason: reasonOf(cause), detail: detailOf(cause) };
    }
  }

  async claim({ hostname, env }: OwnerParams<"claim">): Promise<OwnerResult<"claim">> {
    if (this.#isClaimed) throw new Failure("wrong_state", "Cannot claim the VM: it is claimed already");
    this.#isClaimed = true;
    const startedAt = this.#powers.now();
    await this.#up.promise;
    const machine = this.machine();
    if (this.#plan.pool) {
      await machine.resume();
      await machine.repair(hostname);
    } else await machine.prepare(hostname);
    if (env.length > 0) await machine.setEnv(env);
    machine.health.start();
    return { ready_ms: this.#powers.now() - startedAt };
  }

  async stop(forced: boolean): Promise<void> {
    await this.machine().stop(forced);
  }

  async #bringUp(machine: Machine, peer: Peer): Promise<void> {
    const startedAt = this.#powers.now();
    const confinement = await machine.wake();
    let state: "warm" | "ready" | "saved" = "ready";
    if (this.#plan.kind === "golden") {
      await machine.rehearse();
      await machine.save();
      state = "saved";
    } else if (this.#plan.pool) {
      await machine.prepare("capsem");
      await machine.warm();
      await machine.fillHelpers();
      await machine.pause();
      state = "warm";
    }
    this.#up.resolve();
    await peer.call(
      "owner.ready",
      {
        state,
        uptime_ms: this.#powers.now() - startedAt,
        hypervisor_pid: machine.pid,
        unconfined: [...confinement.missing],
        notes: [...confinement.notes],
      },
      { timeoutMs: 10_000 },
    );
  }
}

/** QEMU ends with 0 by itself when the guest powered off or its kernel gave up. */
function endReason({ exitCode }: HypervisorEnd): VmReason {
  return exitCode === 0 ? "guest_lost" : "hypervisor_exit";
}

function describeEnd({ exitCode, signal, failure, stderrTail }: HypervisorEnd): string {
  const how = signal === null ? `exit code ${exitCode}` : `signal ${signal}`;
  return [how, failure?.message ?? "", stderrTail.trim()].filter((part) => part !== "").join("; ");
}

function detailOf(cause: unknown): string {
  const detail = cause instanceof Failure ? cause.detail : undefined;
  return detail === undefined ? messageOf(cause) : `${messageOf(cause)}; ${detail}`;
}

function reasonOf(cause: unknown): VmReason {
  const kind = cause instanceof Failure ? cause.kind : "";
  if (kind === "boot_timeout" || kind === "lane_timeout" || kind === "unresponsive") return "boot_timeout";
  if (kind === "checkpoint_corrupt" || kind === "confinement_refused") return kind;
  return "hypervisor_exit";
}
