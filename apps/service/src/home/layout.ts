import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { ensureOwnFolder } from "@capsem/base/own-folder";
import { checkCache } from "./cache.ts";

/** Where everything lives (design, "Defaults"). Paths alone: nothing here looks at the disk. */
export interface HomeLayout {
  readonly home: string;
  readonly run: string;
  readonly socket: string;
  readonly pidFile: string;
  readonly vms: string;
  readonly logs: string;
  readonly panics: string;
  readonly tmp: string;
  /** One folder a ledger: the ledger process writes here and nowhere else. */
  readonly ledgers: string;
  readonly keys: string;
  /** The last signed head of each ledger, out of the ledger's reach. */
  readonly checkpoints: string;
  /** One file an ask, as long as it matters. */
  readonly asks: string;
  /** Secrets that are kept in files, and the key that their references are made with. */
  readonly credentials: string;
  /** What was approved of each tool server, and what was last seen of it. */
  readonly mcp: string;
  readonly settings: string;
  readonly schema: string;
  readonly backups: string;
  /** Holds images and goldens; the home itself unless it was moved. */
  readonly cache: string;
  readonly images: string;
  readonly goldens: string;
}

export function homeLayout(home: string, cache: string = home): HomeLayout {
  return {
    home,
    run: join(home, "run"),
    socket: join(home, "run", "service.sock"),
    pidFile: join(home, "run", "service.pid"),
    vms: join(home, "vms"),
    logs: join(home, "logs"),
    panics: join(home, "logs", "panics"),
    tmp: join(home, "tmp"),
    ledgers: join(home, "ledgers"),
    keys: join(home, "keys"),
    checkpoints: join(home, "checkpoints"),
    asks: join(home, "asks"),
    credentials: join(home, "credentials"),
    mcp: join(home, "mcp"),
    settings: join(home, "settings.toml"),
    schema: join(home, "schema.json"),
    backups: join(home, "backups"),
    cache,
    images: join(cache, "images"),
    goldens: join(cache, "goldens"),
  };
}

export interface VmFolder {
  readonly folder: string;
  readonly record: string;
  readonly disk: string;
  readonly processes: string;
  readonly logs: string;
  /** The owner's own place: job spools. */
  readonly jobs: string;
}

export function vmFolder(layout: HomeLayout, id: string): VmFolder {
  const folder = join(layout.vms, id);
  return {
    folder,
    record: join(folder, "vm.json"),
    disk: join(folder, "disk.qcow2"),
    processes: join(folder, "processes.json"),
    logs: join(folder, "logs"),
    jobs: join(folder, "jobs"),
  };
}

/**
 * Makes what is missing of it. Throws Failure("folder_unsafe") when another user could change what lies in it, and
 * Failure("cache_unsafe") when another but root could change what VMs are made of.
 */
export async function createHome(layout: HomeLayout, uid: number): Promise<void> {
  const { home, run, vms, logs, panics, tmp, ledgers, keys, checkpoints, asks, credentials, mcp } = layout;
  const own = [home, run, vms, logs, panics, tmp, ledgers, keys, checkpoints, asks, credentials, mcp];
  for (const folder of own) ensureOwnFolder(folder, uid);
  for (const folder of [layout.images, layout.goldens]) {
    await mkdir(folder, { recursive: true, mode: 0o700 });
  }
  await checkCache(layout, uid);
}
