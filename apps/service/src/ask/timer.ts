/** Calls `fire` once after this time; the answer takes it back. */
export type StartTimer = (ms: number, fire: () => void) => () => void;

export const startTimer: StartTimer = (ms, fire) => {
  const timer = setTimeout(fire, ms);
  // What waits for a person must not keep a stopped service alive.
  timer.unref();
  return () => clearTimeout(timer);
};
