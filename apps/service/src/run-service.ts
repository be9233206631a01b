import { mkdir, realpath } from "node:fs/promises";
import { join } from "node:path";
import { Failure, messageOf, within } from "@capsem/base";
import { ensureOwnFolder, openOwnRoot } from "@capsem/base/own-folder";
import { SecretRedactor } from "./credential/redactor.ts";
import { takeInstanceLock } from "./home/instance-lock.ts";
import { createHome, type HomeLayout, homeLayout } from "./home/layout.ts";
import { checkSchemaVersion } from "./home/schema-version.ts";
import { openKeys } from "./ledger/key-files.ts";
import { LOG_LIMITS, PROCESS_LIMITS } from "./limits.ts";
import { createLineRedactor } from "./log/line-redactor.ts";
import { LogFile } from "./log/log-file.ts";
import { createServiceLog, type ServiceLog } from "./log/service-log.ts";
import type { Machinery } from "./machinery.ts";
import { openPolicy } from "./policy/open-policy.ts";
import type { Powers } from "./powers.ts";
import { startService } from "./service.ts";
import { findLostService } from "./trouble/lost-service.ts";
import { panicOf, writePanic } from "./trouble/panic.ts";
import { redactedPanic } from "./trouble/redacted-panic.ts";

export const EXIT_CODES = { stopped: 0, failed: 1, alreadyRunning: 3, homeRefused: 4, panic: 70 } as const;

export interface RunOptions {
  readonly home: string;
  readonly cache: string | undefined;
  /** The environment's word on the pool's size. */
  readonly poolSize: string | undefined;
  /** The machine's own `corp.toml`. */
  readonly machineCorp: string;
  readonly powers: Powers;
  readonly machinery: (layout: HomeLayout) => Machinery;
  /** One line for the person who started us. */
  readonly say: (line: string) => void;
  /** Resolves when the process is asked to stop. */
  readonly stopAsked: Promise<string>;
  readonly onUncaught: (listener: (thrown: unknown) => void) => void;
  readonly exit: (code: number) => never;
}

/** The whole life of the service process. Resolves with its exit code. */
export async function runService(options: RunOptions): Promise<number> {
  try {
    const { uid, lockFile } = options.powers;
    const home = openOwnRoot(options.home, uid);
    const { run } = homeLayout(home);
    ensureOwnFolder(run, uid);
    // Only the lock allows to touch anything else.
    const lock = takeInstanceLock(run, lockFile);
    try {
      return await serve(options, homeLayout(home, await realCache(options.cache)));
    } finally {
      lock.release();
    }
  } catch (thrown) {
    options.say(`capsem service: ${messageOf(thrown)}`);
    return exitCodeOf(thrown);
  }
}

async function serve(options: RunOptions, layout: HomeLayout): Promise<number> {
  const { powers } = options;
  await checkHome(layout, powers.uid);
  const redactor = new SecretRedactor();
  const file = new LogFile(join(layout.logs, "service.jsonl"), {
    redact: createLineRedactor(redactor),
    // It has a line for each request, and a write costs the event loop as much as many a request.
    gatherMs: LOG_LIMITS.gatherMs,
    onError: (thrown) => options.say(`capsem service: Cannot write its log: ${messageOf(thrown)}`),
  });
  const log = createServiceLog(file, powers.nowMs);
  options.onUncaught((thrown) => {
    const time = new Date(powers.nowMs());
    const panic = panicOf({ process: "service", pid: powers.pid, time, thrown });
    writePanic(layout.panics, redactedPanic(redactor, panic));
    options.exit(EXIT_CODES.panic);
  });
  await keepLostService(layout, powers.nowMs(), log);
  const { poolSize, machineCorp } = options;
  const policy = await openPolicy({ layout, uid: powers.uid, log, machineCorp, poolSize });
  const machinery = options.machinery(layout);
  const keys = openKeys(layout.keys, powers.uid);
  const service = await startService({ layout, powers, machinery, policy, keys, redactor, log });
  log("info", "asked to stop", { signal: await options.stopAsked });
  try {
    await within(service.close(), PROCESS_LIMITS.closeTimeoutMs);
    return EXIT_CODES.stopped;
  } catch (thrown) {
    log("error", "stop was cut", { cause: messageOf(thrown) });
    return EXIT_CODES.failed;
  } finally {
    await file.close();
  }
}

/** Refused before a folder is made: a home of a newer version is not ours to change. */
async function checkHome(layout: HomeLayout, uid: number): Promise<void> {
  await checkSchemaVersion(layout);
  await createHome(layout, uid);
}

async function realCache(path: string | undefined): Promise<string | undefined> {
  if (path === undefined) return undefined;
  await mkdir(path, { recursive: true, mode: 0o700 });
  return realpath(path);
}

function exitCodeOf(thrown: unknown): number {
  if (!(thrown instanceof Failure)) return EXIT_CODES.failed;
  if (thrown.kind === "already_running") return EXIT_CODES.alreadyRunning;
  return /^(schema|folder|cache|key|credential)_/.test(thrown.kind)
    ? EXIT_CODES.homeRefused
    : EXIT_CODES.failed;
}

/** A record of trouble must not be what keeps a service from starting. */
async function keepLostService(layout: HomeLayout, nowMs: number, log: ServiceLog): Promise<void> {
  try {
    const lost = await findLostService(layout, nowMs);
    if (lost === null) return;
    writePanic(layout.panics, lost);
    log("warning", lost.message, { pid: lost.pid, location: lost.location });
  } catch (thrown) {
    log("error", "cannot tell of the previous service", { cause: messageOf(thrown) });
  }
}
