import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import { applyEdits, emptyLayer, type PolicyEdit, renderLayer, type SettingKey } from "@capsem/policy";
import { readJsonFile, writeFileAtomic } from "../home/atomic-file.ts";
import type { HomeLayout } from "../home/layout.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { faultInfo, fileFault, startFailure } from "./faults.ts";
import { readPolicyFile } from "./policy-file.ts";

const OLD_NAME = "settings.json";

/** Keys of `settings.json`, which earlier versions read, and where each stands now. */
const NOW: Readonly<Record<string, SettingKey>> = {
  pool_size: "limits.pool_size",
  idle_secs: "limits.idle_secs",
  lifetime_secs: "limits.lifetime_secs",
  running_max: "limits.running_max",
  retained_max: "limits.retained_max",
  memory_gib_max: "limits.memory_gib_max",
  default_cpus: "limits.default_cpus",
  default_memory_gib: "limits.default_memory_gib",
  allow_unconfined: "confinement.allow_unconfined",
};

/**
 * Makes `settings.toml` of a `settings.json`, once: the old file moves to `backups/`. Throws Failure
 * "settings_invalid" for what cannot be carried over, and where both are there: nobody would read the old one.
 */
export async function migrateSettings(layout: HomeLayout, uid: number, log: ServiceLog): Promise<void> {
  const old = join(layout.home, OLD_NAME);
  const found = await readOld(old);
  if (found === null) return;
  const copy = join(layout.backups, OLD_NAME);
  const text = `${JSON.stringify(found, null, 2)}\n`;
  if (readPolicyFile(layout.settings, "settings.toml", uid).kind !== "missing") {
    // The copy says that an earlier start came this far and no further.
    const copied = readPolicyFile(copy, OLD_NAME, uid);
    if (copied.kind !== "text" || copied.text !== text) throw bothThere(layout);
  } else {
    const settings = tomlOf(found);
    await mkdir(layout.backups, { recursive: true, mode: 0o700 });
    await writeFileAtomic(copy, text);
    await writeFileAtomic(layout.settings, settings);
    log("info", "settings.json became settings.toml", { copy });
  }
  await rm(old);
}

async function readOld(path: string): Promise<unknown> {
  try {
    return await readJsonFile(path);
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    throw startFailure([fileFault(OLD_NAME, thrown.message)]);
  }
}

function tomlOf(found: unknown): string {
  if (typeof found !== "object" || found === null || Array.isArray(found)) {
    throw startFailure([fileFault(OLD_NAME, "it is no object")]);
  }
  const edits = Object.entries(found).map(([key, value]): PolicyEdit => {
    return { kind: "set", key: Object.hasOwn(NOW, key) ? (NOW[key] ?? key) : key, value };
  });
  const made = applyEdits({ user: emptyLayer("user"), corp: emptyLayer("corp") }, edits);
  if (made.kind === "refused") throw startFailure(made.faults.map((fault) => faultInfo(fault, OLD_NAME)));
  return `# Made of settings.json, which is in backups/ now.\n\n${renderLayer(made.value)}`;
}

function bothThere(layout: HomeLayout): Failure {
  const text = `Cannot use "${join(layout.home, OLD_NAME)}": settings are in settings.toml now; move what it says there, and remove it`;
  return startFailure([fileFault(OLD_NAME, text)]);
}
