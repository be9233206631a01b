/** Distance in single-character edits; stops early, because only small ones matter. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

/** `; did you mean "x"?` for the closest known word, or nothing when none is close. */
export function suggestion(word: string, known: Iterable<string>): string {
  const short = word.slice(0, 64);
  let best: string | undefined;
  let least = Math.max(2, Math.floor(short.length / 3)) + 1;
  for (const candidate of known) {
    if (Math.abs(candidate.length - short.length) >= least) continue;
    const steps = distance(short, candidate);
    if (steps < least) {
      least = steps;
      best = candidate;
    }
  }
  return best === undefined ? "" : `; did you mean "${best}"?`;
}
