import type { Condition } from "./cel/condition.ts";
import { childrenOf, type Expression } from "./cel/expression.ts";
import { onceEach } from "./once-each.ts";

/**
 * Characters that hardly anybody compares with, and that a backslash before a letter makes: as in `"\bwget\b"`, where
 * the edge of a word was meant, or in `"C:\bin"`. Tabs and line breaks are in many texts.
 */
const LETTERS: ReadonlyMap<string, readonly [letter: string, name: string]> = new Map([
  ["\u0007", ["a", "bell"]],
  ["\b", ["b", "backspace"]],
  ["\v", ["v", "vertical tab"]],
  ["\f", ["f", "form feed"]],
]);

/** A longer text is not shown as it should be written. */
const SHOWN_CHARS_MAX = 60;

/** What the first text in which such a character stands holds, and what to write. */
export const suspectText = onceEach((condition: Condition): string | undefined => {
  for (const text of textsIn(condition.expression)) {
    for (const [character, [letter, name]] of LETTERS) {
      if (!text.includes(character) || isMeant(condition.source, character)) continue;
      const what = `holds a ${name}, which is what \\${letter} makes in quotes; write ${rewritten(text, letter)}`;
      return `${what} ("${escapesOf(character)[0]}" where it is meant)${notToml(condition.source)}`;
    }
  }
  return undefined;
});

function textsIn(expression: Expression): string[] {
  if (expression.kind !== "literal") return childrenOf(expression).flatMap(textsIn);
  return typeof expression.value === "string" ? [expression.value] : [];
}

/** Whoever writes its number means the character. */
function isMeant(source: string, character: string): boolean {
  const lower = source.toLowerCase();
  return escapesOf(character).some((written) => lower.includes(written));
}

function escapesOf(character: string): readonly [string, ...string[]] {
  const code = character.charCodeAt(0);
  const hex = (digits: number) => code.toString(16).padStart(digits, "0");
  return [`\\u${hex(4)}`, `\\x${hex(2)}`, `\\u${hex(8)}`, `\\${code.toString(8).padStart(3, "0")}`];
}

/** The text with its backslashes, raw and escaped; without the text where it is long or cannot be shown. */
function rewritten(text: string, letter: string): string {
  const plain = [...text].map((each) => (LETTERS.has(each) ? `\\${LETTERS.get(each)?.[0]}` : each)).join("");
  const isShown = plain.length <= SHOWN_CHARS_MAX && !/["\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(plain);
  if (!isShown) return `\\\\${letter}, or the text as r"…"`;
  return `r"${plain}" or "${plain.replaceAll("\\", "\\\\")}"`;
}

/** The character stands in the condition itself: the quotes of the file made it, before CEL came to read it. */
function notToml(source: string): string {
  return [...LETTERS.keys()].some((character) => source.includes(character))
    ? "; put match between ' and ', where the file leaves backslashes alone"
    : "";
}
