/** The candidate nearest to a mistyped word, null when none is near. */
export function suggest(word: string, candidates: readonly string[]): string | null {
  let best: string | null = null;
  let distanceMin = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = candidate.startsWith(word) && word.length > 1 ? 1 : distanceOf(word, candidate);
    if (distance < distanceMin) {
      best = candidate;
      distanceMin = distance;
    }
  }
  return best;
}

/** Changes of one character, and swaps of two neighbours, that make one word of the other. */
function distanceOf(left: string, right: string): number {
  const rows: number[][] = [];
  for (let i = 0; i <= left.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= right.length; j += 1) {
      const above = rows[i - 1];
      if (above === undefined) {
        row.push(j);
        continue;
      }
      const same = left[i - 1] === right[j - 1] ? 0 : 1;
      let cost = Math.min(cell(above, j) + 1, cell(row, j - 1) + 1, cell(above, j - 1) + same);
      const swapped = i > 1 && j > 1 && left[i - 1] === right[j - 2] && left[i - 2] === right[j - 1];
      if (swapped) cost = Math.min(cost, cell(rows[i - 2], j - 2) + 1);
      row.push(cost);
    }
    rows.push(row);
  }
  return cell(rows[left.length], right.length);
}

function cell(row: readonly number[] | undefined, at: number): number {
  return row?.[at] ?? Number.POSITIVE_INFINITY;
}
