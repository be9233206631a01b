import { Failure } from "@capsem/base";
import * as z from "zod";
import { readJsonFile } from "./home/atomic-file.ts";
import { POOL_LIMITS } from "./limits.ts";

/** settings.json: what a person may change. Every key is optional; an unknown one is an error, not a typo kept. */
export const settingsFile = z.strictObject({
  pool_size: z.number().int().min(0).max(POOL_LIMITS.sizeMax).default(2),
  idle_secs: z.number().positive().default(3_600),
  lifetime_secs: z.number().positive().default(86_400),
  running_max: z.number().int().min(1).max(256).default(8),
  retained_max: z.number().int().min(1).max(4_096).default(32),
  memory_gib_max: z.number().min(0.25).max(64).default(4),
  default_cpus: z.number().int().min(1).max(64).default(1),
  /** Start VMs although this machine cannot confine their processes as it should (docs/confinement.md). */
  allow_unconfined: z.boolean().default(false),
  default_memory_gib: z.number().min(0.25).max(64).multipleOf(0.25).default(0.5),
});
export type Settings = z.infer<typeof settingsFile>;

/** `poolSize` is the environment's word, which wins over the file: tests and benchmarks use it. */
export async function readSettings(path: string, poolSize?: string): Promise<Settings> {
  const found = await readJsonFile(path);
  const parsed = settingsFile.safeParse(found ?? {});
  if (!parsed.success) {
    throw new Failure("settings_invalid", `Cannot read "${path}": ${z.prettifyError(parsed.error)}`);
  }
  if (poolSize === undefined || poolSize === "") return parsed.data;
  const size = Number(poolSize);
  if (!Number.isInteger(size) || size < 0 || size > POOL_LIMITS.sizeMax) {
    throw new Failure(
      "settings_invalid",
      `Cannot use pool size "${poolSize}": it is not 0..${POOL_LIMITS.sizeMax}`,
    );
  }
  return { ...parsed.data, pool_size: size };
}
