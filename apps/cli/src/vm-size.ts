import { CapsemError, type Client } from "@capsem/sdk";
import type { Args } from "./args.ts";
import { usageError } from "./cli-error.ts";

export interface VmSize {
  readonly cpus?: number;
  readonly memory_gib?: number;
}

const CPUS_MIN = 1;
const MEMORY_GIB_MIN = 0.25;

/** How large a VM may be is the service's to say. */
export function sizeOf(args: Args): VmSize {
  const cpus = args.number("cpus", CPUS_MIN, Number.POSITIVE_INFINITY, 1);
  const memoryGib = args.number("memory", MEMORY_GIB_MIN, Number.POSITIVE_INFINITY, 0.25, "GiB");
  return {
    ...(cpus === undefined ? {} : { cpus }),
    ...(memoryGib === undefined ? {} : { memory_gib: memoryGib }),
  };
}

/** A refused size in the words of the options; everything else is thrown on as it came. */
export async function withSizeLimits<T>(client: Client, size: VmSize, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (thrown) {
    const refused = thrown instanceof CapsemError && thrown.kind === "invalid_input";
    if (!refused || (size.cpus === undefined && size.memory_gib === undefined)) throw thrown;
    const { limits } = await client.status();
    if ((size.cpus ?? 0) > limits.cpus_max)
      throw usageError(`Cannot use --cpus ${size.cpus}: the service gives ${CPUS_MIN} to ${limits.cpus_max}`);
    if ((size.memory_gib ?? 0) > limits.memory_gib_max)
      throw usageError(
        `Cannot use --memory ${size.memory_gib}: the service gives ${MEMORY_GIB_MIN} to ${limits.memory_gib_max} GiB`,
      );
    throw thrown;
  }
}
