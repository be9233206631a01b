const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The moment that a checked `since` parameter means; null without one. */
export function sinceMsOf(since: string | undefined, nowMs: number): number | null {
  if (since === undefined) return null;
  const span = /^([0-9]+)([smhd])$/.exec(since);
  if (span === null) return Date.parse(since);
  return nowMs - Number(span[1]) * (UNIT_MS[span[2] ?? ""] ?? 0);
}
