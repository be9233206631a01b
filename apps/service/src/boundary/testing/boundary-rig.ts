import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, vi } from "vitest";
import { createAct } from "../../act.ts";
import { SecretRedactor } from "../../credential/redactor.ts";
import type { EventHub } from "../../events/event-hub.ts";
import { GoldenBook } from "../../golden/golden-book.ts";
import { createHome, type HomeLayout, homeLayout } from "../../home/layout.ts";
import { createApiServer } from "../../http/server.ts";
import type { ServiceLog } from "../../log/service-log.ts";
import { OwnerStarter } from "../../owner/owner-start.ts";
import { UidSlots } from "../../owner/uid-slots.ts";
import { Pool } from "../../pool/pool.ts";
import type { Powers } from "../../powers.ts";
import { nodePowers, startOwner } from "../../powers-node.ts";
import { createHandlers, type EvidenceHandlers } from "../../routes/index.ts";
import { bundled } from "../../testing/bundle.ts";
import { type Client, createClient } from "../../testing/client.ts";
import { fakeMachinery, storeFakeGolden } from "../../testing/fake-machinery.ts";
import { killAll, pidsWith } from "../../testing/rig.ts";
import { FindingBook } from "../../trouble/finding-book.ts";
import { Launcher } from "../../vm/launch.ts";
import { Lifecycle } from "../../vm/lifecycle.ts";
import { Quota } from "../../vm/quota.ts";
import { Registry } from "../../vm/registry.ts";
import type { Vm } from "../../vm/vm.ts";
import { createVmWatch } from "../../vm/vm-watch.ts";
import { createBoundary } from "../boundary.ts";
import type { Boundary } from "../parts.ts";
import { recordUnasked } from "../unasked-end.ts";
import { FakeAsks, FakeLedger, FakePolicy } from "./fake-parts.ts";

// Processes start in these tests, on machines that are busy with other ones.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 60_000 });

export interface BoundaryRigOptions {
  /** In place of the real one: what happens without it. */
  readonly boundary?: Boundary;
  readonly checkLedger?: (id: string) => Promise<void>;
  readonly poolSize?: number;
}

export interface BoundaryRig {
  readonly client: Client;
  readonly socket: string;
  readonly policy: FakePolicy;
  readonly ledger: FakeLedger;
  readonly asks: FakeAsks;
  readonly redactor: SecretRedactor;
  readonly boundary: Boundary;
  readonly registry: Registry;
  readonly lifecycle: Lifecycle;
  readonly pool: Pool;
  readonly log: Record<string, unknown>[];
  /** Owners that were started. */
  readonly starts: string[];
  /** What owners of VMs were asked from `spy` on. */
  readonly calls: string[];
  spy(id: string): void;
  /** A file of a fake VM. */
  guestFile(id: string, name: string): string;
  create(body?: unknown): Promise<string>;
  close(): Promise<void>;
}

/** The VM side of a service behind its boundary, with fakes for rules, ledger and asks, and fake owners. */
export async function startBoundaryRig(options: BoundaryRigOptions = {}): Promise<BoundaryRig> {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-boundary-")));
  const layout = homeLayout(home);
  await createHome(layout, process.getuid?.() ?? -1);
  const script = join(home, "fake-owner.json");
  writeFileSync(script, "{}");
  storeFakeGolden(layout.goldens, "1-512");
  const log: Record<string, unknown>[] = [];
  const starts: string[] = [];
  const side = vmSide(layout, rigPowers(script, starts), options, (level, message, fields = {}) => {
    log.push({ level, message, ...fields });
  });
  const { registry, lifecycle, pool, goldens, server } = side;
  const socket = join(home, "rig.sock");
  await new Promise<void>((resolve) => server.http.listen(socket, resolve));
  const client = createClient(socket);
  const calls: string[] = [];
  return {
    ...side,
    ...{ client, socket, log, starts, calls },
    spy: (id) => spyOn(registry.get(id), calls),
    guestFile: (id, name) => join(layout.vms, id, "guest", name),
    async create(body = {}) {
      const reply = await client.post("/vms/create", body);
      expect(reply.status, reply.bytes.toString()).toBe(200);
      return reply.json<{ id: string }>().id;
    },
    async close() {
      await Promise.all([lifecycle.close(), pool.close()]);
      await goldens.close();
      await server.close();
      killAll(pidsWith(`HOME=${layout.vms}`));
      rmSync(home, { recursive: true, force: true });
    },
  };
}

function vmSide(layout: HomeLayout, powers: Powers, options: BoundaryRigOptions, log: ServiceLog) {
  const fakes = { policy: new FakePolicy(), ledger: new FakeLedger(), asks: new FakeAsks() };
  const { policy } = fakes;
  const redactor = new SecretRedactor();
  const parts = { ...powers, ...fakes, redactor, log, digestKey: Buffer.alloc(32, 7) };
  const boundary = options.boundary ?? createBoundary(parts);
  const registry = new Registry(layout);
  const machinery = fakeMachinery(layout.cache);
  const starter = new OwnerStarter(powers, machinery, new UidSlots(powers.uid, layout.home));
  const goldens = new GoldenBook({ layout, powers, machinery, starter, log });
  const launcher = new Launcher(layout, machinery, goldens, starter);
  const quota = new Quota(powers, () => policy.snapshot().settings.values, layout);
  const target = options.poolSize ?? 0;
  const want = () => ({ shape: quota.defaultShape, target, allowsUnconfined: false });
  const pool = new Pool({ layout, powers, launcher, log, want });
  const findings = new FindingBook(powers.nowMs);
  const counts = { created: 0, deleted: 0, failed: 0, jobsStarted: 0 };
  const events = { changed: () => undefined, gone: () => undefined };
  const lifecycle = new Lifecycle({
    ...{ layout, powers, registry, quota, launcher, pool, log },
    watch: createVmWatch({ events, findings, counts }),
    unasked: recordUnasked(boundary),
    checkLedger: options.checkLedger ?? (async () => undefined),
  });
  const notHere = () => {
    throw new Error("not in this rig");
  };
  const handlers = createHandlers(
    {
      ...{ layout, powers, registry, lifecycle, boundary, policy, log, findings, counts },
      ...{ status: notHere, stats: notHere, events: notHere as unknown as EventHub },
      finishLedger: async () => undefined,
      sampleDisk: async () => undefined,
    },
    {} as EvidenceHandlers,
  );
  const server = createApiServer(
    { handlers, act: createAct(log, powers.monotonicMs), checksAnswers: true, random: powers.random },
    { kind: "user", name: "uid 1000" },
  );
  return { ...fakes, redactor, boundary, registry, lifecycle, pool, goldens, server };
}

function spyOn({ run }: Vm, calls: string[]): void {
  if (run === null) return;
  const [call, open] = [run.call.bind(run), run.open.bind(run)];
  run.call = ((method: "job.wait", ...rest: [never]) => {
    if (!HOUSEKEEPING.includes(method)) calls.push(method);
    return call(method, ...rest);
  }) as typeof run.call;
  run.open = ((method: "job.read", ...rest: [never]) => {
    calls.push(method);
    return open(method, ...rest);
  }) as typeof run.open;
}

/** The service looks after its owners by itself. */
const HOUSEKEEPING: readonly string[] = ["ping"];

function rigPowers(script: string, starts: string[]): Powers {
  const owner = bundled("fake-owner");
  return {
    ...nodePowers(owner),
    uid: 1000,
    hostCpus: 4,
    confinement: () => ({ isEnforced: false, reason: "a fake" }),
    availableMemoryBytes: () => 16 * 1024 ** 3,
    freeDiskBytes: async () => 100 * 1024 ** 3,
    startOwner(plan, descriptors) {
      starts.push(plan.vm_id);
      return startOwner({ file: process.execPath, args: [owner] }, descriptors, {
        FAKE_OWNER_SCRIPT: script,
      });
    },
  };
}

/** Rigs that end with the test that started them. */
export function useBoundaryRigs(): (options?: BoundaryRigOptions) => Promise<BoundaryRig> {
  const rigs: BoundaryRig[] = [];
  afterEach(async () => {
    for (const rig of rigs.splice(0)) await rig.close();
  });
  return async (options = {}) => {
    const rig = await startBoundaryRig(options);
    rigs.push(rig);
    return rig;
  };
}
