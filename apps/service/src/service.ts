import { messageOf } from "@capsem/base";
import { createAct, type Principal } from "./act.ts";
import { GoldenBook } from "./golden/golden-book.ts";
import type { HomeLayout } from "./home/layout.ts";
import { openRunFiles, type RunFiles } from "./home/run-files.ts";
import { type ApiServer, createApiServer } from "./http/server.ts";
import { TIMES } from "./limits.ts";
import type { ServiceLog } from "./log/service-log.ts";
import type { Machinery } from "./machinery.ts";
import { OwnerStarter } from "./owner/owner-start.ts";
import { UidSlots } from "./owner/uid-slots.ts";
import { Pool } from "./pool/pool.ts";
import type { Powers } from "./powers.ts";
import { createHandlers } from "./routes/index.ts";
import type { Settings } from "./settings.ts";
import { serviceStatusOf } from "./status.ts";
import { Launcher } from "./vm/launch.ts";
import { Lifecycle } from "./vm/lifecycle.ts";
import { Quota } from "./vm/quota.ts";
import { recover } from "./vm/recovery.ts";
import { Registry, type WriteRecord } from "./vm/registry.ts";
import type { RemovePath } from "./vm/remove-files.ts";
import { Sweep } from "./vm/sweep.ts";

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
  /** VMs end in order, then the socket goes. Idempotent. */
  close(): Promise<void>;
}

/** Recovers, listens, then warms up in the background: the first answer does not wait for an image. */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { layout, powers, machinery, settings, log } = options;
  const startedAt = new Date(powers.nowMs()).toISOString();
  const registry = new Registry(layout, options.writeRecord);
  await recover({ layout, powers, registry, log });
  const starter = new OwnerStarter(powers, machinery, new UidSlots(powers.uid, layout.home));
  const goldens = new GoldenBook({ layout, powers, machinery, starter, log });
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
    ...(options.removePath === undefined ? {} : { removePath: options.removePath }),
  });
  const sweep = new Sweep({ layout, powers, machinery, settings, registry, lifecycle, log });
  const handlers = createHandlers({
    layout,
    powers,
    registry,
    lifecycle,
    log,
    status: () => serviceStatusOf({ layout, powers, settings, registry, pool, launcher, startedAt }),
    sampleDisk: (id) => sweep.sampleDisk(registry.get(id)),
  });
  const act = createAct(log, powers.monotonicMs);
  const user: Principal = { kind: "user", name: `uid ${powers.uid}` };
  const server = createApiServer({ handlers, act, checksAnswers: options.checksAnswers ?? false }, user);
  const runFiles = await openRunFiles(layout, server.http, powers.pid);
  warmUp(launcher, pool, log);
  const timer = setInterval(
    () => void Promise.allSettled([sweep.pass(), pool.sweep()]),
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
    close() {
      closing ??= closeAll({ timer, lifecycle, pool, goldens, server, runFiles, log });
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
  await parts.goldens.close();
  await parts.server.close();
  await parts.runFiles.close();
  parts.log("info", "service stopped");
}
