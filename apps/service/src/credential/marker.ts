import type { Hit } from "./matcher.ts";

/** What stands where a secret stood: the reference in brackets, which needs escaping nowhere. */
export function markerOf(ref: string): string {
  return `[${ref}]`;
}

const MARKERS = /\[(credential:blake3:[0-9a-f]{64})\]/g;
/** Two of them, with the digits of any: what else stands in a redacted text is somebody's own. */
const PATTERN = `[credential:blake3:${"#".repeat(64)}]`.repeat(2);

/** A part of a text that is replaced, and by what, in order. */
export interface Span {
  readonly start: number;
  readonly end: number;
  readonly refs: readonly string[];
}

/**
 * Hits joined where they overlap. A marker of ours is whole or gone: what lies in one is no secret, and a hit that
 * reaches into one takes it along, so that the next round finds nothing new.
 */
export function spans(text: string, hits: readonly Hit[], isOurs: (ref: string) => boolean): Span[] {
  if (hits.length === 0) return [];
  const markers = [...text.matchAll(MARKERS)]
    .map((found) => ({ start: found.index, end: found.index + found[0].length, ref: found[1] ?? "" }))
    .filter(({ ref }) => isOurs(ref));
  const own = hits.filter((hit) => !isCovered(hit, markers));
  if (own.length === 0) return [];
  const touched = markers.filter((marker) =>
    own.some((hit) => hit.start < marker.end && marker.start < hit.end),
  );
  const all = [...own, ...touched].sort((a, b) => a.start - b.start || a.end - b.end);
  const joined: { start: number; end: number; refs: string[] }[] = [];
  for (const { start, end, ref } of all) {
    const last = joined.at(-1);
    const isSame = last?.refs.at(-1) === ref;
    if (last === undefined || start > last.end || (start === last.end && !isSame)) {
      joined.push({ start, end, refs: [ref] });
      continue;
    }
    last.end = Math.max(last.end, end);
    if (!isSame) last.refs.push(ref);
  }
  return joined;
}

/** Whether a text could be found in what redaction itself writes. Digits alone do not make it so. */
export function readsLikeMarker(text: string): boolean {
  for (let start = 0; start + text.length <= PATTERN.length; start += 1) {
    const part = PATTERN.slice(start, start + text.length);
    if (/[^#]/.test(part) && [...part].every((sign, at) => isSame(sign, text.charAt(at)))) return true;
  }
  return text.includes("credential:blake3:");
}

function isSame(sign: string, character: string): boolean {
  return sign === "#" ? /[0-9a-f]/.test(character) : sign === character;
}

/** No character of it stands outside of markers. */
function isCovered({ start, end }: Hit, markers: readonly { start: number; end: number }[]): boolean {
  let at = start;
  for (const marker of markers) {
    if (at >= end) break;
    if (marker.start <= at && at < marker.end) at = marker.end;
  }
  return at >= end;
}
