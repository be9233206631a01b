import { CapsemError } from "./error.ts";
import { REQUEST_TIMEOUT_MS } from "./limits.ts";
import type { CallOptions } from "./operation.ts";
import type { Transport, TransportSocket } from "./transport.ts";

/** A browser tells nobody why a WebSocket was refused. */
export class UnexplainedRefusal extends CapsemError {}

/**
 * Opens a WebSocket. Where the refusal came without a reason, `explain` makes a plain call that fails for the same
 * reason, or renews the token; nothing was executed before the first message, so opening once more is safe.
 */
export async function openSocket(
  transport: Transport,
  path: string,
  protocol: string,
  explain: (options: CallOptions) => Promise<unknown>,
  options: CallOptions,
): Promise<TransportSocket> {
  const open = () =>
    transport.socket(path, [protocol], {
      timeoutMs: options.timeoutMs ?? REQUEST_TIMEOUT_MS,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
  try {
    return await open();
  } catch (thrown) {
    if (!(thrown instanceof UnexplainedRefusal)) throw thrown;
    await explain(options);
    return open();
  }
}
