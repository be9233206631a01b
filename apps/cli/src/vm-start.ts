import { ignore } from "@capsem/base";
import type { Client } from "@capsem/sdk";
import type { Context } from "./context.ts";
import { STARTING_POLL_MS } from "./limits.ts";
import { startProgress } from "./progress.ts";

/** Waits for VMs that start, and says where that takes long what it takes long for: the first golden of a size. */
export async function whileStarting<T>(
  { powers, output }: Pick<Context, "powers" | "output">,
  client: Pick<Client, "status">,
  work: Promise<T>,
): Promise<T> {
  const progress = startProgress(powers, output);
  const startedMs = powers.now();
  let timer: NodeJS.Timeout | null = null;
  const look = async () => {
    const what = whatOf(await client.status());
    // The answer may come when the VM runs already.
    if (timer === null) return;
    if (what !== null) progress.update(`${what}, once (${Math.round((powers.now() - startedMs) / 1000)} s)`);
    timer = setTimeout(again, STARTING_POLL_MS);
  };
  // A service that does not answer is the work's to tell.
  const again = () => ignore(look());
  timer = setTimeout(again, STARTING_POLL_MS);
  try {
    return await work;
  } finally {
    clearTimeout(timer);
    timer = null;
    progress.end();
  }
}

function whatOf({ accelerator, goldens }: Awaited<ReturnType<Client["status"]>>): string | null {
  if (accelerator === null) return "finding out how VMs run on this machine";
  if (goldens.making === 0) return null;
  return goldens.ready === 0 ? "making the first snapshot" : "making the snapshot of this size";
}
