import { Failure, within } from "@capsem/base";

/** Waits for the end of something, whatever it was. */
export async function settled(promise: Promise<unknown> | null): Promise<void> {
  await Promise.allSettled([promise]);
}

/** Whether the promise, which never rejects, settled in time. */
export async function settledWithin(promise: Promise<unknown>, timeoutMs: number): Promise<boolean> {
  try {
    await within(promise, timeoutMs);
    return true;
  } catch (thrown) {
    if (thrown instanceof Failure && thrown.kind === "timeout") return false;
    throw thrown;
  }
}
