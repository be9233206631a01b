import { stat } from "node:fs/promises";
import { cpus, memoryGib, vmName } from "@capsem/api";
import type { VmFolder } from "../home/layout.ts";
import { openRegularFile } from "../home/regular-file.ts";
import { VM_LIMITS } from "../limits.ts";
import type { VmRecord } from "./record.ts";

/** What stands in for a vm.json that cannot be read, with as much of it as still makes sense. Never throws. */
export async function standInRecord(id: string, paths: VmFolder): Promise<VmRecord> {
  const text = await readSome(paths.record);
  const created = await stat(paths.folder).then(
    ({ mtime }) => mtime,
    () => new Date(0),
  );
  return {
    schema: 1,
    id,
    name: textIn(text, "name", (word) => vmName.safeParse(word).success),
    state: "failed",
    reason: "record_unreadable",
    cpus: numberIn(text, "cpus", (value) => cpus.safeParse(value).success) ?? 1,
    memory_mib:
      numberIn(text, "memory_mib", (value) => memoryGib.safeParse(value / 1024).success) ??
      VM_LIMITS.memoryGibMin * 1024,
    created_at:
      textIn(text, "created_at", (word) => Number.isFinite(Date.parse(word))) ?? created.toISOString(),
    started_at: null,
    failed_at: null,
    image: textIn(text, "image", (word) => /^[a-z0-9:]{1,80}$/.test(word)) ?? "unknown",
    env: {},
  };
}

/** A record is small unless somebody made it large. */
async function readSome(path: string): Promise<string> {
  try {
    const file = await openRegularFile(path);
    try {
      const bytes = Buffer.alloc(VM_LIMITS.recordBytesRead);
      const { bytesRead } = await file.read(bytes, 0, bytes.length, 0);
      return bytes.toString("utf8", 0, bytesRead);
    } finally {
      await file.close();
    }
  } catch {
    // Not even that: the folder's name is all that is known.
    return "";
  }
}

/** Found in the text, because it may be no JSON; the first of the key is the record's own, our writer puts env last. */
function textIn(text: string, key: string, isGood: (word: string) => boolean): string | null {
  const word = new RegExp(`"${key}"\\s*:\\s*"([^"\\\\]{1,200})"`).exec(text)?.[1];
  return word !== undefined && isGood(word) ? word : null;
}

function numberIn(text: string, key: string, isGood: (value: number) => boolean): number | null {
  const word = new RegExp(`"${key}"\\s*:\\s*([0-9]{1,9})\\b`).exec(text)?.[1];
  return word !== undefined && isGood(Number(word)) ? Number(word) : null;
}
