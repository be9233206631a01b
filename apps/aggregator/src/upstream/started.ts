import { inBackground } from "./failure.ts";
import type { Session } from "./session.ts";

/**
 * A session whose handshake is done. Whatever ends that before, and the signal at any moment of it, ends what the session
 * has open.
 */
export async function started<S extends Session & { start(signal: AbortSignal): Promise<void> }>(
  session: S,
  signal: AbortSignal,
): Promise<S> {
  const end = () => inBackground(session.close());
  signal.addEventListener("abort", end, { once: true });
  try {
    signal.throwIfAborted();
    await session.start(signal);
    signal.throwIfAborted();
    return session;
  } catch (thrown) {
    end();
    throw thrown;
  } finally {
    signal.removeEventListener("abort", end);
  }
}
