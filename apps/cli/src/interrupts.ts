import { constants } from "node:os";
import { exitOfSignal } from "./exit-code.ts";
import type { Powers, Signal } from "./powers.ts";

export interface InterruptListener {
  /** The first Ctrl-C: the job gets it too. */
  interrupt(): void;
  /** The second one, SIGTERM or SIGHUP: everything ends now, and the program with this exit code. */
  kill(exitCode: number): void;
}

const LAST: readonly Signal[] = ["SIGTERM", "SIGHUP"];

/**
 * Work that leaves something behind where the program just ends, a temporary file: told to end, it is aborted and cleans
 * up, and the exit code says what told it. It must wait for nothing that `told` does not end.
 */
export async function cleanedUp(
  powers: Powers,
  told: AbortController,
  work: () => Promise<number>,
): Promise<number> {
  const unwatch = watchInterrupts(powers, {
    interrupt: () => told.abort(exitOfSignal(constants.signals.SIGINT)),
    kill: (exitCode) => told.abort(exitCode),
  });
  try {
    return await work();
  } catch (thrown) {
    if (told.signal.aborted) return Number(told.signal.reason);
    throw thrown;
  } finally {
    unwatch();
  }
}

/** Listens until the returned function is called, and after a kill to the very end: its exit code stands. */
export function watchInterrupts(powers: Powers, listener: InterruptListener): () => void {
  let interrupted = false;
  let killed = false;
  const stop = powers.onSignals(["SIGINT", ...LAST], (name) => {
    if (name === "SIGINT" && !interrupted) {
      interrupted = true;
      listener.interrupt();
    } else if (!killed) {
      killed = true;
      listener.kill(exitOfSignal(constants.signals[name]));
    }
  });
  return () => {
    if (!killed) stop();
  };
}
