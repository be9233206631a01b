import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DOCTOR_COMMAND_MS } from "../limits.ts";
import type { Powers } from "../powers.ts";
import { settingOfFile } from "../settings-file.ts";
import type { Finding } from "./findings.ts";

const NAME = "confinement";
const ACTIONS = "/proc/sys/kernel/seccomp/actions_avail";

/** What owners and the gateway are confined by. Without it no VM starts, unless the settings allow that. */
export async function confinement(powers: Powers): Promise<Finding> {
  const addon = join(powers.programFolder, "native.node");
  if (!existsSync(addon)) {
    return finding("warning", "not known: the native addon is not built", "Run ./capsem again: it builds it");
  }
  const landlock = await landlockVersion(addon);
  const seccomp = readText(ACTIONS).split(/\s+/).includes("errno");
  const lacks = [...(landlock > 0 ? [] : ["Landlock"]), ...(seccomp ? [] : ["seccomp filters"])];
  if (lacks.length === 0) return finding("good", `Landlock (version ${landlock}) and seccomp`, "");
  const detail = `this kernel has no ${lacks.join(" and no ")}`;
  if (settingOfFile(powers.home, "confinement.allow_unconfined") === true) {
    return finding(
      "warning",
      `${detail}; settings.toml starts VMs without`,
      "Boot a kernel with Landlock switched on",
    );
  }
  const remedy =
    "Boot a kernel with Landlock switched on, or run ./capsem settings set confinement.allow_unconfined=true";
  return finding("missing", `${detail}, so VMs do not start`, remedy);
}

function finding(state: Finding["state"], detail: string, remedy: string): Finding {
  return { name: NAME, state, detail, remedy };
}

/** Asked in a process of its own: an addon of another Node would end this one. 0: none. */
function landlockVersion(addon: string): Promise<number> {
  const question = `require(${JSON.stringify(addon)}).landlockAbi()`;
  return new Promise((resolve) => {
    execFile(process.execPath, ["-p", question], { timeout: DOCTOR_COMMAND_MS }, (error, out) => {
      const version = Number(out.trim());
      resolve(error === null && Number.isInteger(version) ? version : 0);
    });
  });
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // Not there: a kernel without it.
    return "";
  }
}
