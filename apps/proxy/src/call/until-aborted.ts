/**
 * Waits for work that nobody can stop, and no longer than the signal lets: throws its reason. The work goes on, and what
 * becomes of it is nobody's.
 */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let leave: (() => void) | undefined;
  try {
    return await new Promise<T>((resolve, reject) => {
      leave = () => reject(signal.reason);
      if (signal.aborted) leave();
      else signal.addEventListener("abort", leave, { once: true });
      work.then(resolve, reject);
    });
  } finally {
    if (leave !== undefined) signal.removeEventListener("abort", leave);
  }
}
