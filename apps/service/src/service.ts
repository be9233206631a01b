import { ignore, messageOf } from "@capsem/base";
import { createAct, type Principal } from "./act.ts";
import type { EventHub } from "./events/event-hub.ts";
import { GoldenBook } from "./golden/golden-book.ts";
import type { HomeLayout } from "./home/layout.ts";
import { openRunFiles, type RunFiles } from "./home/run-files.ts";
import { type ApiServer, createApiServer } from "./http/server.ts";
import { TIMES } from "./limits.ts";
import type { OldLogs } from "./log/old-logs.ts";
import type { ServiceLog } from "./log/service-log.ts";
import type { Machinery } from "./machinery.ts";
import { createObservation, observedStarter, oldLogsOf } from "./observation.ts";
import { OwnerStarter } from "./owner/owner-start.ts";
import { UidSlots } from "./owner/uid-slots.ts";
import { Pool } from "./pool/pool.ts";
import type { Powers } from "./powers.ts";
import { createHandlers } from "./routes/index.ts";
import type { Settings } from "./settings.ts";
import { serviceStatsOf } from "./stats/service-stats.ts";
import { serviceStatusOf } from "./status.ts";
import { Launcher } from "./vm/launch.ts";
import { Lifecycle } from "./vm/lifecycle.ts";
import { Quota } from "./vm/quota.ts";
import { recover } from "./vm/recovery.ts";
import { Registry, type WriteRecord } from "./vm/registry.ts";
import type { RemovePath } from "./vm/remove-files.ts";
import { Sweep } from "./vm/sweep.ts";
import { createVmWatch } from "./vm/vm-watch.ts";

export interface ServiceOptions {
  /** Created, of a known schema version, and locked for us. */
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly machinery: Machinery;
  readonly settings: Settings;
  readonly log: ServiceLog;
  readonly checksAnswers?: boolean;
  /** For fault injection. */
  readonly writeRecord?: WriteRecord;
  readonly removePath?: RemovePath;
}

export interface Service {
  readonly server: ApiServer;
  readonly registry: Registry;
  readonly pool: Pool;
  readonly sweep: Sweep;
  readonly events: EventHub;
  readonly oldLogs: OldLogs;
  /** VMs end in order, then the socket goes. Idempotent. */
  close(): Promise<void>;
}

/** Recovers, listens, then warms up in the background: the first answer does not wait for an image. */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { layout, powers, machinery, settings, log } = options;
  const registry = new Registry(layout, options.writeRecord);
  await recover({ layout, powers, registry, log });
  const observation = createObservation(powers, registry);
  const { startedAt, events, findings, counts, routes } = observation;
  const uids = new UidSlots(powers.uid, layout.home);
  const owners = new OwnerStarter(powers, machinery, uids, settings.allow_unconfined);
  const starter = observedStarter(owners, observation, layout, powers, log);
  const goldens = new GoldenBook({ layout, powers, machinery, starter, log }, () => findings.prepared());
  const launcher = new Launcher(layout, machinery, goldens, starter);
  const quota = new Quota(powers, settings, layout);
  const shape = quota.defaultShape;
  const pool = new Pool({ layout, powers, launcher, log, shape, target: settings.pool_size });
  const lifecycle = new Lifecycle({
    layout,
    powers,
    registry,
    quota,
    launcher,
    pool,
    log,
    watch: createVmWatch({ events, findings, counts }),
    ...(options.removePath === undefined ? {} : { removePath: options.removePath }),
  });
  const sweep = new Sweep({ layout, powers, machinery, settings, registry, lifecycle, log });
  const handlers = createHandlers({
    layout,
    powers,
    registry,
    lifecycle,
    log,
    status: () => serviceStatusOf({ layout, powers, settings, registry, pool, launcher, goldens, startedAt }),
    stats: () => serviceStatsOf({ powers, registry, pool, ...observation }),
    events,
    findings,
    counts,
    sampleDisk: (id) => sweep.sampleDisk(registry.get(id)),
  });
  const act = createAct(log, powers.monotonicMs, [routes, findings]);
  const user: Principal = { kind: "user", name: `uid ${powers.uid}` };
  const server = createApiServer({ handlers, act, checksAnswers: options.checksAnswers ?? false }, user);
  const runFiles = await openRunFiles(layout, server.http, powers.pid);
  warmUp(launcher, pool, log);
  const oldLogs = oldLogsOf(layout, powers, registry);
  ignore(oldLogs.pass());
  const timer = setInterval(
    () => void Promise.allSettled([sweep.pass(), pool.sweep(), oldLogs.pass()]),
    TIMES.sweepIntervalMs,
  );
  timer.unref();
  log("info", "service started", { pid: powers.pid, vms: registry.list().length });
  let closing: Promise<void> | null = null;
  return {
    server,
    registry,
    pool,
    sweep,
    events,
    oldLogs,
    close() {
      closing ??= closeAll({ timer, events, lifecycle, pool, goldens, server, runFiles, log });
      return closing;
    },
  };
}

function warmUp(launcher: Launcher, pool: Pool, log: ServiceLog): void {
  launcher.ground().then(
    ({ image, accelerator, hypervisor }) => {
      log("info", "ready for VMs", {
        image: image.digest,
        agent: image.agentDigest,
        accelerator: accelerator.name,
        reason: accelerator.reason,
        hypervisor: hypervisor.version,
      });
      pool.open();
    },
    (thrown: unknown) => {
      log("error", "no VM can start yet", { cause: messageOf(thrown) });
      pool.open();
    },
  );
}

interface Closing {
  readonly timer: NodeJS.Timeout;
  readonly events: EventHub;
  readonly lifecycle: Lifecycle;
  readonly pool: Pool;
  readonly goldens: GoldenBook;
  readonly server: ApiServer;
  readonly runFiles: RunFiles;
  readonly log: ServiceLog;
}

async function closeAll(parts: Closing): Promise<void> {
  parts.log("info", "service stops");
  clearInterval(parts.timer);
  await Promise.all([parts.lifecycle.close(), parts.pool.close()]);
  // The ends of VMs are the last events.
  parts.events.close();
  await parts.goldens.close();
  await parts.server.close();
  await parts.runFiles.close();
  parts.log("info", "service stopped");
}
