import * as z from "zod";
import { readJsonFile, writeFileAtomic } from "../home/atomic-file.ts";
import { TIMES } from "../limits.ts";
import type { Processes } from "../powers.ts";

const processRecord = z.strictObject({
  pid: z.number().int().min(2),
  /** Start time and boot: the pid alone may be another process by now. */
  birth: z.string(),
});
const processesFile = z.record(z.enum(["owner", "hypervisor"]), processRecord.optional());
type ProcessesFile = z.infer<typeof processesFile>;

/** vms/<id>/processes.json: what a later service must kill if this one dies without a chance to. */
export class ProcessRecord {
  readonly #path: string;
  readonly #processes: Processes;
  #known: Partial<ProcessesFile> = {};
  #writing: Promise<void> = Promise.resolve();

  constructor(path: string, processes: Processes) {
    this.#path = path;
    this.#processes = processes;
  }

  /** Never rejects and never delays: an orphan also ends by itself when its channel to us does. */
  note(role: "owner" | "hypervisor", pid: number): void {
    const birth = this.#processes.birth(pid);
    if (birth === null) return;
    this.#known = { ...this.#known, [role]: { pid, birth } };
    const text = `${JSON.stringify(this.#known)}\n`;
    this.#writing = this.#writing.then(() => writeFileAtomic(this.#path, text, false)).catch(() => undefined);
  }

  /** Resolves when nothing more is written: its folder may go then. */
  settled(): Promise<void> {
    return this.#writing;
  }
}

/** Kills what a dead service left running for one VM. Resolves with how many were alive when all are gone. */
export async function killOrphans(path: string, processes: Processes): Promise<number> {
  const parsed = processesFile.safeParse(await readJsonFile(path).catch(() => null));
  if (!parsed.success) return 0;
  const alive = Object.values(parsed.data).filter(
    (found) => found !== undefined && isAlive(found, processes),
  );
  for (const found of alive) if (found !== undefined) processes.kill(found.pid, "SIGKILL");
  const deadline = performance.now() + TIMES.killTimeoutMs;
  while (alive.some((found) => found !== undefined && isAlive(found, processes))) {
    if (performance.now() > deadline) break;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return alive.length;
}

function isAlive(found: { pid: number; birth: string }, processes: Processes): boolean {
  return processes.birth(found.pid) === found.birth;
}
