/**
 * Words of a text on lines of at most so many characters; the first line begins as the text does, the others behind
 * `indent` spaces. A word that fits on no line is cut by nobody: it would be no word any more.
 */
export function wrap(text: string, charsMax: number, indent = 0): string[] {
  const [lead = ""] = /^ */.exec(text) ?? [];
  const [first = "", ...words] = text.slice(lead.length).split(" ");
  const lines: string[] = [];
  let line = `${lead}${first}`;
  for (const word of words) {
    if (`${line} ${word}`.length <= charsMax) line += ` ${word}`;
    else {
      lines.push(line);
      line = `${" ".repeat(indent)}${word}`;
    }
  }
  return [...lines, line];
}
