import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@capsem/base";
import { SETTINGS } from "@capsem/policy";
import type { Redactor } from "../boundary/parts.ts";
import { writeFileAtomic } from "../home/atomic-file.ts";
import type { HomeLayout } from "../home/layout.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { Pool } from "../pool/pool.ts";
import type { Registry } from "../vm/registry.ts";
import { ActivePolicy } from "./active-policy.ts";
import { policyPaths } from "./policy-state.ts";
import { PolicyStore, poolSizeOf } from "./policy-store.ts";
import { PolicyWatch } from "./policy-watch.ts";
import { migrateSettings } from "./settings-migration.ts";

export interface OpenPolicy {
  readonly layout: HomeLayout;
  readonly uid: number;
  readonly log: ServiceLog;
  /** The machine's own `corp.toml`; where there is none, the one in the home counts. */
  readonly machineCorp: string;
  /** The environment's word on the pool's size. */
  readonly poolSize?: string | undefined;
}

/** What holds at the start. Throws Failure "settings_invalid" with every fault. */
export async function openPolicy({
  layout,
  uid,
  log,
  machineCorp,
  poolSize,
}: OpenPolicy): Promise<PolicyStore> {
  const size = poolSizeOf(poolSize, SETTINGS["limits.pool_size"].shape.most);
  await migrateSettings(layout, uid, log);
  return PolicyStore.open({
    paths: policyPaths(layout, machineCorp),
    uid,
    log,
    ...(size === undefined ? {} : { poolSize: size }),
    async keepCopy(text) {
      await mkdir(layout.backups, { recursive: true, mode: 0o700 });
      await writeFileAtomic(join(layout.backups, "settings.toml"), text);
    },
  });
}

export interface FollowParts {
  readonly policy: PolicyStore;
  readonly layout: HomeLayout;
  readonly log: ServiceLog;
  readonly redactor: Pick<Redactor, "text">;
  readonly registry: Pick<Registry, "list">;
  readonly pool: Pick<Pool, "settingsChanged">;
}

export interface PolicyFollowing {
  /** For VMs that come to run: see `showingPolicy`. */
  readonly activePolicy: ActivePolicy;
  close(): void;
}

/** From now on edits by hand count, the pool is as settings want it, and VMs' folders show what is in force. */
export function followPolicy({
  policy,
  layout,
  log,
  redactor,
  registry,
  pool,
}: FollowParts): PolicyFollowing {
  const running = () => registry.list().flatMap(({ id, record }) => (record.state === "running" ? [id] : []));
  const activePolicy = new ActivePolicy({
    layout,
    uid: policy.uid,
    ...{ log, redactor },
    snapshot: () => policy.snapshot(),
    running,
  });
  policy.hold(activePolicy);
  policy.hold({
    name: "pool",
    accept: async () => pool.settingsChanged(),
    replace: () => Promise.resolve(),
  });
  const changed = async () => {
    try {
      await policy.refresh();
    } catch (thrown) {
      log("error", "cannot read changed settings", { cause: messageOf(thrown) });
    }
  };
  const watch = new PolicyWatch({ files: () => policy.files, changed, log });
  return { activePolicy, close: () => watch.close() };
}
