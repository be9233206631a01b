/** Terminal escapes of a guest must not act on the terminal of whoever reads its words. A tab stays. */
export function visible(text: string): string {
  let shown = "";
  for (const character of text) {
    const code = character.charCodeAt(0);
    const isControl = (code < 0x20 && code !== 9) || (code >= 0x7f && code <= 0x9f);
    shown += isControl ? `\\x${code.toString(16).padStart(2, "0")}` : character;
  }
  return shown;
}

/**
 * As above for one line on which a person decides: nothing in it is unseen, turns the order of what is seen, or begins
 * another line.
 */
export function visibleLine(text: string, charactersMax: number): string {
  const shown = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Surrogate}\p{Co}\p{Cn}]/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
  });
  const characters = [...shown];
  return characters.length <= charactersMax ? shown : `${characters.slice(0, charactersMax - 1).join("")}…`;
}
