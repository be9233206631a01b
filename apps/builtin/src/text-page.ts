/** A part of a text: parts that follow each other by `nextOffset` are the text, with nothing lost or added. */
export interface TextPage {
  readonly text: string;
  /** In UTF-16 units, as all numbers here. */
  readonly offset: number;
  readonly totalChars: number;
  /** Null after the last part. */
  readonly nextOffset: number | null;
}

/** No character of two units is cut apart. */
export function pageOf(text: string, offset: number, charsMax: number): TextPage {
  const from = wholeAt(text, Math.min(offset, text.length));
  let to = wholeAt(text, Math.min(from + charsMax, text.length));
  // A page of one unit would never get over a character of two.
  if (to === from && from < text.length) to = Math.min(from + 2, text.length);
  const isLast = to >= text.length;
  return {
    text: text.slice(from, to),
    offset: from,
    totalChars: text.length,
    nextOffset: isLast ? null : to,
  };
}

/** A part of a text whose ends cut no character apart. */
export function partOf(text: string, from: number, to: number): string {
  return text.slice(wholeAt(text, from), wholeAt(text, to));
}

function wholeAt(text: string, at: number): number {
  const isWithin = isHigh(text.charCodeAt(at - 1)) && isLow(text.charCodeAt(at));
  return isWithin ? at - 1 : at;
}

const isHigh = (unit: number) => unit >= 0xd800 && unit < 0xdc00;
const isLow = (unit: number) => unit >= 0xdc00 && unit < 0xe000;
