import type { ServiceStatus } from "@capsem/api";
import type { Settings } from "@capsem/policy";
import { confinementState } from "./confinement-state.ts";
import type { GoldenBook } from "./golden/golden-book.ts";
import type { HomeLayout } from "./home/layout.ts";
import type { Pool } from "./pool/pool.ts";
import type { Powers } from "./powers.ts";
import { VERSION } from "./version.ts";
import type { Launcher } from "./vm/launch.ts";
import type { Registry } from "./vm/registry.ts";

export interface StatusParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly settings: Settings;
  readonly policy: ServiceStatus["policy"];
  readonly ledger: ServiceStatus["ledger"];
  readonly asks: ServiceStatus["asks"];
  readonly registry: Registry;
  readonly pool: Pool;
  readonly launcher: Launcher;
  readonly goldens: GoldenBook;
  readonly startedAt: string;
}

export function serviceStatusOf(parts: StatusParts): ServiceStatus {
  const { layout, powers, settings, registry, pool, launcher, goldens, startedAt } = parts;
  const vms = registry.list();
  const accelerator = launcher.known?.accelerator;
  const { isEnforced, reason } = confinementState(powers.confinement(), vms);
  return {
    version: VERSION,
    pid: powers.pid,
    started_at: startedAt,
    home: layout.home,
    accelerator: accelerator === undefined ? null : { name: accelerator.name, reason: accelerator.reason },
    image: launcher.known?.image.digest ?? null,
    vms: {
      running: vms.filter(({ record }) => record.state === "running").length,
      total: vms.length,
    },
    confinement: { is_enforced: isEnforced, reason },
    pool: { warm: pool.count("warm"), preparing: pool.count("preparing"), target: pool.target },
    goldens: goldens.counts,
    policy: parts.policy,
    ledger: parts.ledger,
    asks: parts.asks,
    limits: {
      running_max: settings["limits.running_max"],
      retained_max: settings["limits.retained_max"],
      memory_gib_max: settings["limits.memory_gib_max"],
      cpus_max: powers.hostCpus,
    },
  };
}
