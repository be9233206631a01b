import { mkdir, realpath } from "node:fs/promises";
import { join } from "node:path";
import { Failure, messageOf, within } from "@capsem/base";
import { takeInstanceLock } from "./home/instance-lock.ts";
import { createHome, type HomeLayout, homeLayout } from "./home/layout.ts";
import { checkSchemaVersion } from "./home/schema-version.ts";
import { PROCESS_LIMITS } from "./limits.ts";
import { LogFile } from "./log/log-file.ts";
import { createServiceLog } from "./log/service-log.ts";
import type { Machinery } from "./machinery.ts";
import type { Powers } from "./powers.ts";
import { startService } from "./service.ts";
import { readSettings } from "./settings.ts";
import { panicOf, writePanic } from "./trouble/panic.ts";

export const EXIT_CODES = { stopped: 0, failed: 1, alreadyRunning: 3, homeRefused: 4, panic: 70 } as const;

export interface RunOptions {
  readonly home: string;
  readonly cache: string | undefined;
  /** The environment's word on the pool's size. */
  readonly poolSize: string | undefined;
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
    // The lock's name needs the real path, and only the lock allows to touch anything else.
    await mkdir(options.home, { recursive: true, mode: 0o700 });
    const home = await realpath(options.home);
    const lock = await takeInstanceLock(options.powers.uid, home);
    try {
      return await serve(options, homeLayout(home, options.cache));
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
  await checkHome(layout);
  const file = new LogFile(join(layout.logs, "service.jsonl"));
  const log = createServiceLog(file, powers.nowMs);
  options.onUncaught((thrown) => {
    const time = new Date(powers.nowMs());
    writePanic(layout.panics, panicOf({ process: "service", pid: powers.pid, time, thrown }));
    options.exit(EXIT_CODES.panic);
  });
  const settings = await readSettings(layout.settings, options.poolSize);
  const machinery = options.machinery(layout);
  const service = await startService({ layout, powers, machinery, settings, log });
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
async function checkHome(layout: HomeLayout): Promise<void> {
  await checkSchemaVersion(layout);
  await createHome(layout);
}

function exitCodeOf(thrown: unknown): number {
  if (!(thrown instanceof Failure)) return EXIT_CODES.failed;
  if (thrown.kind === "already_running") return EXIT_CODES.alreadyRunning;
  return thrown.kind.startsWith("schema_") ? EXIT_CODES.homeRefused : EXIT_CODES.failed;
}
