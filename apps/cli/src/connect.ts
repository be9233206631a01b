import { Failure } from "@capsem/base";
import type { Client } from "@capsem/sdk";
import { createNodeClient } from "@capsem/sdk/node";
import type { Output } from "./output.ts";
import type { Powers } from "./powers.ts";
import { probe } from "./probe.ts";
import { startProgress } from "./progress.ts";

/** A client whose service answers; it is started when nobody listens. */
export async function connect(powers: Powers, output: Output): Promise<Client> {
  const client = createNodeClient({ home: powers.home });
  if (await probe(client, powers)) return client;
  if (powers.env.CAPSEM_NO_AUTOSTART === "1")
    throw new Failure(
      "unavailable",
      "Cannot reach the service: it does not run, and CAPSEM_NO_AUTOSTART is set",
      {
        retryable: true,
      },
    );
  await ensureService(client, powers, output);
  return client;
}

/** True when it was started now. */
export async function ensureService(client: Client, powers: Powers, output: Output): Promise<boolean> {
  if (await probe(client, powers)) return false;
  const { startService } = await import("./service-start.ts");
  await startService(powers, () => probe(client, powers), startProgress(powers, output));
  return true;
}
