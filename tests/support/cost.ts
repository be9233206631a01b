const PASSES = 30;

/** What any machine does in a while: some passes over a text, character by character. */
function yardstick(text: string): number {
  let hash = 0x811c9dc5;
  for (let pass = 0; pass < PASSES; pass += 1) {
    for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return hash;
}

/** Of this process, with its collector: what another program takes of the machine is not in it. */
function cpuUs(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}

/**
 * How many passes over a text of 64 KiB take as long as `work` does, both in processor time, at their quickest and in
 * turn: a machine that is slow or busy is so for both.
 */
export function costInPasses(work: () => unknown, rounds = 30): number {
  const text = "0123456789abcdef".repeat(4_096);
  let [workUs, passesUs] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (let round = 0; round < rounds; round += 1) {
    const startedUs = cpuUs();
    work();
    const betweenUs = cpuUs();
    yardstick(text);
    workUs = Math.min(workUs, betweenUs - startedUs);
    passesUs = Math.min(passesUs, cpuUs() - betweenUs);
  }
  return (workUs / passesUs) * PASSES;
}
