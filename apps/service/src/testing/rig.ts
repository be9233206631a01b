import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { emptyLayer, renderLayer, type SettingKey, type Settings } from "@capsem/policy";
import { SecretRedactor } from "../credential/redactor.ts";
import { createHome, type HomeLayout, homeLayout } from "../home/layout.ts";
import { openKeys } from "../ledger/key-files.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { Machinery } from "../machinery.ts";
import { openPolicy } from "../policy/open-policy.ts";
import type { PolicyStore } from "../policy/policy-store.ts";
import type { Powers } from "../powers.ts";
import { linuxProcesses, nodePowers, startOwner } from "../powers-node.ts";
import { type Service, type ServiceOptions, startService } from "../service.ts";
import { bundled } from "./bundle.ts";
import { type Client, createClient } from "./client.ts";
import { FakeLedger } from "./fake-ledger.ts";
import { type FakeFaults, fakeMachinery, storeFakeGolden } from "./fake-machinery.ts";
import type { FakeScript } from "./fake-script.ts";

export interface RigOptions {
  /** Written to `settings.toml`. */
  readonly settings?: Partial<Settings>;
  readonly script?: FakeScript;
  readonly powers?: Partial<Powers>;
  readonly home?: string;
  /** Whether a golden of the default shape lies in the store, which saves its building; true by default. */
  readonly hasGolden?: boolean;
  readonly faults?: FakeFaults;
  readonly options?: Partial<ServiceOptions>;
}

export interface Rig {
  readonly layout: HomeLayout;
  readonly client: Client;
  readonly faults: FakeFaults;
  /** What owners that start from now on do. */
  script(script: FakeScript): void;
  /** The time of the service runs ahead by this much. */
  advance(ms: number): void;
  /** Somebody sets the wall clock; the steady one knows nothing of it. */
  setWallAhead(ms: number): void;
  readonly log: Record<string, unknown>[];
  readonly policy: PolicyStore;
  service: Service;
  /** Folders of VMs, processes of owners and hypervisors, descriptors: what must return to its baseline. */
  counts(): { folders: number; processes: number; descriptors: number };
  processes(): number;
  /** As if each owner had died by a signal. */
  killOwners(): void;
  close(): Promise<void>;
}

/** A whole service in this process, with fake owners as child processes. */
export async function startRig(options: RigOptions = {}): Promise<Rig> {
  const home = options.home ?? realpathSync(mkdtempSync(join(tmpdir(), "capsem-service-")));
  const layout = homeLayout(home);
  const uid = process.getuid?.() ?? -1;
  await createHome(layout, uid);
  const scriptPath = join(home, "fake-owner.json");
  const writeScript = (script: FakeScript) => writeFileSync(scriptPath, JSON.stringify(script));
  writeScript(options.script ?? {});
  const faults: FakeFaults = { ...options.faults };
  if (options.hasGolden !== false) storeFakeGolden(layout.goldens, "1-512");
  const log: Record<string, unknown>[] = [];
  const keepLog: ServiceLog = (level, message, fields = {}) => void log.push({ level, message, ...fields });
  const clock = { aheadMs: 0, wallAheadMs: 0 };
  const values = Object.entries({ "limits.pool_size": 0, ...options.settings });
  const layer = { ...emptyLayer("user"), settings: new Map(values as [SettingKey, number][]) };
  const isAgain = options.settings === undefined && existsSync(layout.settings);
  if (!isAgain) writeFileSync(layout.settings, renderLayer(layer));
  const machineCorp = join(home, "machine-corp.toml");
  const policy = await openPolicy({ layout, uid, log: keepLog, machineCorp });
  const service = await startService({
    layout,
    powers: rigPowers(scriptPath, clock, options.powers ?? {}),
    machinery: fakeMachinery(layout.cache, faults) satisfies Machinery,
    policy,
    keys: openKeys(layout.keys, uid),
    redactor: new SecretRedactor(),
    log: keepLog,
    checksAnswers: true,
    ...options.options,
  });
  return {
    layout,
    client: createClient(layout.socket),
    faults,
    script: writeScript,
    advance: (ms) => {
      clock.aheadMs += ms;
    },
    setWallAhead(ms) {
      clock.wallAheadMs = ms;
    },
    log,
    policy,
    service,
    counts: () => ({
      folders: readdirSync(layout.vms).length,
      processes: pidsNaming(home).length,
      descriptors: readdirSync("/proc/self/fd").length,
    }),
    processes: () => pidsNaming(home).length,
    killOwners() {
      for (const pid of pidsNaming(home)) {
        if (readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("fake-owner")) killAll([pid]);
      }
    },
    async close() {
      await service.close();
      // Jobs of a fake VM are processes of the host: a real one takes its own along.
      killAll(pidsWith(`HOME=${layout.vms}`));
      if (options.home === undefined) rmSync(home, { recursive: true, force: true });
    },
  };
}

function rigPowers(
  scriptPath: string,
  clock: { aheadMs: number; wallAheadMs: number },
  over: Partial<Powers>,
): Powers {
  const owner = bundled("fake-owner");
  return {
    ...nodePowers(owner),
    // Plans are those of an unprivileged service, whoever runs the tests.
    uid: 1000,
    hostCpus: 4,
    confinement: () => ({ isEnforced: false, reason: "a fake" }),
    nowMs: () => Date.now() + clock.aheadMs + clock.wallAheadMs,
    monotonicMs: () => performance.now() + clock.aheadMs,
    availableMemoryBytes: () => 16 * 1024 ** 3,
    freeDiskBytes: async () => 100 * 1024 ** 3,
    startLedger: new FakeLedger({}).startLedger,
    startOwner: (_plan, descriptors) =>
      startOwner({ file: process.execPath, args: [owner] }, descriptors, { FAKE_OWNER_SCRIPT: scriptPath }),
    ...over,
  };
}

/** Fake owners carry their script's path in their environment, and so do their hypervisors. */
export function pidsNaming(home: string): number[] {
  return pidsWith(join(home, "fake-owner.json"));
}

/** One that has ended meanwhile is no matter. */
export function killAll(pids: readonly number[]): void {
  const { kill } = linuxProcesses();
  for (const pid of pids) kill(pid, "SIGKILL");
}

/** Processes whose environment has this text. */
export function pidsWith(text: string): number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, "utf8").includes(text);
    } catch {
      return false;
    }
  });
}
