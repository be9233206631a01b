import { Failure } from "./error.ts";

/**
 * Races `work` with a time limit and an optional signal. The work itself is not stopped: pass the signal on
 * to what does it. `makeError` names what was waited for.
 */
export async function within<T>(
  work: Promise<T>,
  timeoutMs: number,
  makeError: () => Error = () => new Failure("timeout", `Timed out after ${timeoutMs} ms`),
  signal?: AbortSignal,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let onAbort: (() => void) | undefined;
  try {
    return await new Promise<T>((resolve, reject) => {
      timer = setTimeout(() => reject(makeError()), timeoutMs);
      if (signal !== undefined) {
        onAbort = () => reject(new Failure("cancelled", "Cancelled", { cause: signal.reason }));
        if (signal.aborted) onAbort();
        else signal.addEventListener("abort", onAbort, { once: true });
      }
      work.then(resolve, reject);
    });
  } finally {
    clearTimeout(timer);
    if (onAbort !== undefined) signal?.removeEventListener("abort", onAbort);
  }
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(new Failure("cancelled", "Cancelled", { cause: signal?.reason }));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}
