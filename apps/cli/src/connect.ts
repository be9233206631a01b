import { Failure } from "@capsem/base";
import type { Client } from "@capsem/sdk";
import { createClient, nodeTransport, socketPathOf } from "@capsem/sdk/node";
import { tellHeld } from "./ask-text.ts";
import { heldCalls } from "./held-calls.ts";
import type { Output } from "./output.ts";
import type { Powers } from "./powers.ts";
import { probe } from "./probe.ts";
import { startProgress } from "./progress.ts";
import { CLIENT_NAME } from "./version.ts";

export interface Connected {
  readonly client: Client;
  /** One of its calls waits for a person's answer. */
  readonly isHeld: () => boolean;
}

/** A client whose service answers; it is started when nobody listens. */
export async function connect(powers: Powers, output: Output): Promise<Connected> {
  const inner = nodeTransport(socketPathOf(powers.home), { clientName: CLIENT_NAME });
  const held = heldCalls(inner, (ask) => {
    // Nobody reading it is no reason to end.
    tellHeld(output, ask, powers.now()).then(undefined, () => undefined);
  });
  const connected = { client: createClient(held.transport), isHeld: held.isHeld };
  if (await probe(connected.client, powers)) return connected;
  if (powers.env.CAPSEM_NO_AUTOSTART === "1")
    throw new Failure(
      "unavailable",
      "Cannot reach the service: it does not run, and CAPSEM_NO_AUTOSTART is set",
      {
        retryable: true,
      },
    );
  await ensureService(connected.client, powers, output);
  return connected;
}

/** True when it was started now. */
export async function ensureService(client: Client, powers: Powers, output: Output): Promise<boolean> {
  if (await probe(client, powers)) return false;
  const { startService } = await import("./service-start.ts");
  await startService(powers, () => probe(client, powers), startProgress(powers, output));
  return true;
}
