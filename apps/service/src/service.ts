import { ignore, messageOf } from "@capsem/base";
import { createAct, type Principal } from "./act.ts";
import { recordUnasked } from "./boundary/unasked-end.ts";
import type { SecretRedactor } from "./credential/redactor.ts";
import type { EventHub } from "./events/event-hub.ts";
import { GoldenBook } from "./golden/golden-book.ts";
import type { HomeLayout } from "./home/layout.ts";
import { openRunFiles, type RunFiles } from "./home/run-files.ts";
import { type ApiServer, createApiServer } from "./http/server.ts";
import { type Judging, openJudging } from "./judging.ts";
import type { ServiceKeys } from "./ledger/key-files.ts";
import { TIMES } from "./limits.ts";
import { createFlowRedactor } from "./log/flow-redactor.ts";
import { createLineRedactor } from "./log/line-redactor.ts";
import type { OldLogs } from "./log/old-logs.ts";
import { redactedStarter } from "./log/redacted-starter.ts";
import type { ServiceLog } from "./log/service-log.ts";
import type { Machinery } from "./machinery.ts";
import { openTools, type Tools } from "./mcp/open-tools.ts";
import { createObservation, type Observation, observedStarter, oldLogsOf } from "./observation.ts";
import { OwnerStarter } from "./owner/owner-start.ts";
import { UidSlots } from "./owner/uid-slots.ts";
import { showingPolicy } from "./policy/active-policy.ts";
import { policyStatus } from "./policy/infos.ts";
import { followPolicy, type PolicyFollowing } from "./policy/open-policy.ts";
import type { PolicyStore } from "./policy/policy-store.ts";
import { Pool } from "./pool/pool.ts";
import type { Powers } from "./powers.ts";
import { createHandlers, type RouteParts } from "./routes/index.ts";
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
  /** Settings and rules, read and without a fault. */
  readonly policy: PolicyStore;
  readonly keys: ServiceKeys;
  /** Knows no secret yet. */
  readonly redactor: SecretRedactor;
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
  readonly judging: Judging;
  readonly tools: Tools;
  /** VMs end in order, then the socket goes. Idempotent. */
  close(): Promise<void>;
}

/** Recovers, listens, then warms up in the background: the first answer does not wait for an image. */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { layout, powers, policy, redactor, log } = options;
  const registry = new Registry(layout, options.writeRecord);
  const redact = createLineRedactor(redactor);
  const observation = createObservation(powers, registry, {
    asks: () => judging.asks.list("pending"),
    redact: (text) => redactor.text(text).text,
  });
  const { events, findings, counts, routes } = observation;
  const judging = await openJudging({
    ...{ ...options, redact, events, registry },
    knownTools: (server, tool) => tools.known(server, tool),
  });
  await recover({ layout, powers, registry, unasked: recordUnasked(judging.boundary), log });
  const user: Principal = { kind: "user", name: `uid ${powers.uid}` };
  const { digestKey } = options.keys;
  const tools: Tools = await openTools({ ...options, ...judging, redact, registry, digestKey, user });
  const fleet = startFleet(options, { registry, observation, judging, tools });
  const { lifecycle, pool, sweep, following, goldens, launcher } = fleet;
  const { boundary, ledger, asks } = judging;
  const routeParts: RouteParts = {
    ...{ layout, powers, registry, lifecycle, boundary, policy, log, events, findings, counts },
    status: () =>
      serviceStatusOf({
        ...{ layout, powers, registry, pool, launcher, goldens },
        startedAt: observation.startedAt,
        settings: policy.settings(),
        policy: policyStatus(policy),
        ledger: ledger.status,
        asks: { pending: asks.list("pending").length, watchers: events.watcherCount },
      }),
    stats: () => serviceStatsOf({ powers, registry, pool, ...observation }),
    finishLedger: (id) => judging.finish(id),
    sampleDisk: (id) => sweep.sampleDisk(registry.get(id)),
  };
  const handlers = createHandlers(routeParts, { ...judging.handlers, ...tools.handlers });
  const act = createAct(log, powers.monotonicMs, [routes, findings]);
  const checksAnswers = options.checksAnswers ?? false;
  const server = createApiServer({ handlers, act, checksAnswers, random: powers.random }, user);
  const runFiles = await openRunFiles(layout, server.http, powers.pid);
  warmUp(launcher, pool, log);
  const oldLogs = oldLogsOf(layout, powers, registry);
  ignore(oldLogs.pass());
  const passes = [sweep, { pass: () => pool.sweep() }, oldLogs, judging];
  const timer = setInterval(
    () => void Promise.allSettled(passes.map((each) => each.pass())),
    TIMES.sweepIntervalMs,
  );
  timer.unref();
  log("info", "service started", { pid: powers.pid, vms: registry.list().length });
  const closed = {
    timer,
    following,
    judging,
    tools,
    events,
    lifecycle,
    pool,
    goldens,
    server,
    runFiles,
    log,
  };
  let closing: Promise<void> | null = null;
  return {
    ...{ server, registry, pool, sweep, events, oldLogs, judging, tools },
    close() {
      closing ??= closeAll(closed);
      return closing;
    },
  };
}

interface FleetParts {
  readonly registry: Registry;
  readonly observation: Observation;
  readonly judging: Judging;
  readonly tools: Tools;
}

/** What makes VMs and what ends them. */
function startFleet(options: ServiceOptions, { registry, observation, judging, tools }: FleetParts) {
  const { layout, powers, machinery, policy, redactor, log } = options;
  const settings = () => policy.settings();
  const { events, findings, counts } = observation;
  const uids = new UidSlots(powers.uid, layout.home);
  const owners = new OwnerStarter(powers, machinery, uids, () => settings()["confinement.allow_unconfined"]);
  const redacted = redactedStarter(owners, () => createFlowRedactor(redactor));
  const starter = observedStarter(redacted, observation, layout, powers, log);
  const goldens = new GoldenBook({ layout, powers, machinery, starter, log }, () => findings.prepared());
  const launcher = new Launcher(layout, machinery, goldens, starter);
  const quota = new Quota(powers, settings, layout);
  const want = () => ({
    shape: quota.defaultShape,
    target: settings()["limits.pool_size"],
    allowsUnconfined: settings()["confinement.allow_unconfined"],
  });
  const pool = new Pool({ layout, powers, launcher, log, want });
  const following = followPolicy({ policy, layout, log, redactor, registry, pool });
  const seen = showingPolicy(createVmWatch({ events, findings, counts }), following.activePolicy);
  const lifecycle = new Lifecycle({
    ...{ layout, powers, registry, quota, launcher, pool, log },
    unasked: recordUnasked(judging.boundary),
    checkLedger: (id, signal) => judging.ledger.checkWhole(id, signal),
    watch: tools.watching(judging.watching(seen)),
    ...(options.removePath === undefined ? {} : { removePath: options.removePath }),
  });
  const sweep = new Sweep({ layout, powers, machinery, settings, registry, lifecycle, log });
  return { goldens, launcher, pool, following, lifecycle, sweep };
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
  readonly following: PolicyFollowing;
  readonly judging: Judging;
  readonly tools: Tools;
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
  parts.following.close();
  // Held calls are refused while their clients can still hear it.
  await parts.judging.asks.close();
  await Promise.all([parts.lifecycle.close(), parts.pool.close()]);
  // The ends of VMs are the last events.
  parts.events.close();
  await parts.goldens.close();
  await Promise.all([parts.server.close(), parts.tools.close()]);
  // The last rows are those of requests that ended just now.
  await parts.judging.ledger.close();
  await parts.runFiles.close();
  parts.log("info", "service stopped");
}
