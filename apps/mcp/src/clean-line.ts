/**
 * Words of the other end as one line: of bounded length, without the characters that nobody sees or that change lines or
 * the order in which others are shown.
 */
export function cleanLine(text: string, charsMax: number): string {
  // What lies far behind the end is not looked at.
  const line = text
    .slice(0, charsMax * 4)
    .replace(UNSEEN, " ")
    .trim();
  return line.length <= charsMax ? line : `${line.slice(0, charsMax - 1).replace(HALF, "")}…`;
}

const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]+/gu;
/** The first half of a pair that makes one character. */
const HALF = /[\uD800-\uDBFF]$/;
