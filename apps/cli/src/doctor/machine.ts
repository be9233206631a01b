import { accessSync, constants, existsSync, readdirSync, statfsSync } from "node:fs";
import { dirname, join } from "node:path";
import { messageOf } from "@capsem/base";
import { DISK_FLOOR_BYTES } from "../limits.ts";
import type { Powers } from "../powers.ts";
import { renderBytes } from "../render.ts";
import { CLIENT_NAME } from "../version.ts";
import type { Finding } from "./findings.ts";

const NODE_MIN = [20, 20] as const;

export function nodeVersion(version: string): Finding {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const good = major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1]);
  const remedy = good ? "" : `Install Node.js ${NODE_MIN.join(".")} or newer`;
  return { name: "Node.js", state: good ? "good" : "missing", detail: version, remedy };
}

export function kvm(): Finding {
  const name = "KVM";
  const path = "/dev/kvm";
  const slow = "VMs run in emulation, which is slower";
  if (!existsSync(path)) {
    const remedy = "On your own machine: enable virtualisation in its firmware, then load the kvm module";
    return { name, state: "warning", detail: `no ${path}; ${slow}`, remedy };
  }
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
    return {
      name,
      state: "good",
      detail: `${path} can be opened; the service tests whether it works`,
      remedy: "",
    };
  } catch {
    const remedy = "Add yourself to the group kvm, then log in again";
    return { name, state: "warning", detail: `${path} is closed to you; ${slow}`, remedy };
  }
}

export function diskSpace({ home }: Powers): Finding {
  const name = "disk space";
  let folder = home;
  while (!existsSync(folder) && dirname(folder) !== folder) folder = dirname(folder);
  const { bavail, bsize } = statfsSync(folder);
  const free = bavail * bsize;
  const detail = `${renderBytes(free)} free in ${folder}`;
  const remedy = "Free some space, or set CAPSEM_HOME to a folder on another disk";
  if (free < DISK_FLOOR_BYTES) return { name, state: "missing", detail, remedy };
  if (free < 2 * DISK_FLOOR_BYTES) return { name, state: "warning", detail, remedy };
  return { name, state: "good", detail, remedy: "" };
}

export function guestImage({ env, home }: Powers): Finding {
  const name = "guest image";
  const images = join(env.CAPSEM_CACHE ?? home, "images");
  const digests = namesIn(join(images)).filter((entry) => entry !== "by-recipe");
  if (namesIn(join(images, "by-recipe")).length > 0)
    return { name, state: "good", detail: `${digests.length} in ${images}`, remedy: "" };
  const remedy = "Run ./capsem again: it builds the image when there is none";
  return { name, state: "missing", detail: `none in ${images}`, remedy };
}

/** It starts by itself at the next command, so that its absence is no fault. */
export async function serviceSocket(powers: Powers): Promise<Finding> {
  const name = "service";
  const [{ createNodeClient }, { probe }] = await Promise.all([
    import("@capsem/sdk/node"),
    import("../probe.ts"),
  ]);
  const client = createNodeClient({ home: powers.home, clientName: CLIENT_NAME });
  try {
    if (!(await probe(client, powers))) {
      return { name, state: "good", detail: "not running; the next command starts it", remedy: "" };
    }
    const { pid, accelerator, confinement, vms } = await client.status();
    const speed = accelerator === null ? "" : `, accelerator ${accelerator.name} (${accelerator.reason})`;
    const detail = `answers, pid ${pid}${speed}`;
    if (vms.running === 0) return { name, state: "good", detail, remedy: "" };
    if (confinement.is_enforced)
      return { name, state: "good", detail: `${detail}; VMs confined by ${confinement.reason}`, remedy: "" };
    const remedy = "Run ./capsem settings reset confinement.allow_unconfined, and stop what runs unconfined";
    return { name, state: "warning", detail: `${detail}; VMs not confined: ${confinement.reason}`, remedy };
  } catch (thrown) {
    return { name, state: "missing", detail: messageOf(thrown), remedy: "Run ./capsem service stop --force" };
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    // Never made: nothing in it.
    return [];
  }
}
