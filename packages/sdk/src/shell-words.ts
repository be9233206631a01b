import { CapsemError } from "./error.ts";

type Word = string | number | readonly (string | number)[];

/**
 * A command line for a shell in which each value is one word, whatever is in it, and a list is its words:
 * sh`grep ${pattern} ${files}`.
 */
export function sh(texts: TemplateStringsArray, ...values: readonly Word[]): string {
  let line = texts[0] ?? "";
  for (const [at, value] of values.entries()) line += `${wordsOf(value)}${texts[at + 1] ?? ""}`;
  return line;
}

function wordsOf(value: Word): string {
  return typeof value === "string" || typeof value === "number"
    ? quoted(String(value))
    : value.map((each) => quoted(String(each))).join(" ");
}

function quoted(word: string): string {
  if (word.includes("\0")) throw new CapsemError("invalid_input", "Cannot quote value: it holds a NUL");
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
