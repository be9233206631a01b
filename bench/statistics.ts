/** One figure: what was measured, in which unit, against which promise. */
export interface Figure {
  readonly name: string;
  readonly unit: string;
  readonly samples: number;
  readonly p50: number;
  readonly p99: number;
  readonly min: number;
  readonly max: number;
  /** What docs/promises.md says, in words; benchmarks show, they do not assert. */
  readonly promise: string;
}

export function quantile(sorted: readonly number[], q: number): number {
  const at = Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1));
  return sorted[at] ?? Number.NaN;
}

/** p99 of fewer than 100 samples is their maximum: it is printed as such. */
export function figure(name: string, unit: string, values: readonly number[], promise: string): Figure {
  const sorted = [...values].sort((a, b) => a - b);
  return {
    name,
    unit,
    samples: sorted.length,
    p50: quantile(sorted, 0.5),
    p99: quantile(sorted, 0.99),
    min: sorted[0] ?? Number.NaN,
    max: sorted.at(-1) ?? Number.NaN,
    promise,
  };
}

export function renderTable(figures: readonly Figure[]): string {
  const number = (value: number) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2));
  const rows = figures.map(({ name, unit, samples, p50, p99, min, max, promise }) => [
    name,
    unit,
    String(samples),
    number(min),
    number(p50),
    number(p99),
    number(max),
    promise,
  ]);
  const all = [["what", "unit", "n", "min", "p50", "p99", "max", "promise"], ...rows];
  const widths = all[0]?.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0))) ?? [];
  return all
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
