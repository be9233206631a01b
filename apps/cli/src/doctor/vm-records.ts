import { readdirSync } from "node:fs";
import { join } from "node:path";
import { VM_ID_PATTERN } from "@capsem/base";
import { RECORD_BYTES_MAX } from "../limits.ts";
import { readSmallFile } from "../own-home.ts";
import type { Powers } from "../powers.ts";
import type { Finding } from "./findings.ts";

const NAMED_MAX = 5;

/** Records that are no JSON, or another VM's: the service lists such VMs as failed and keeps their disks. */
export function vmRecords({ home }: Powers): Finding {
  const name = "VM records";
  const ids = folders(join(home, "vms"));
  const bad = ids.filter((id) => !isReadable(join(home, "vms", id, "vm.json"), id));
  if (bad.length === 0) return { name, state: "good", detail: `${ids.length} readable`, remedy: "" };
  const named = bad.slice(0, NAMED_MAX).join(", ");
  const more = bad.length > NAMED_MAX ? ` and ${bad.length - NAMED_MAX} more` : "";
  return {
    name,
    state: "warning",
    detail: `vm.json of ${named}${more} cannot be read; the disk is kept`,
    remedy: `Mend vms/${bad[0]}/vm.json, or delete the VM: capsem delete ${bad[0]}`,
  };
}

/** One without a record yet is being made. */
function isReadable(path: string, id: string): boolean {
  try {
    const found: unknown = JSON.parse(readSmallFile(path, RECORD_BYTES_MAX));
    return typeof found === "object" && found !== null && "id" in found && found.id === id;
  } catch (thrown) {
    return thrown instanceof Error && "code" in thrown && thrown.code === "ENOENT";
  }
}

function folders(path: string): string[] {
  try {
    return readdirSync(path).filter((name) => VM_ID_PATTERN.test(name));
  } catch {
    // Never made: no VMs.
    return [];
  }
}
