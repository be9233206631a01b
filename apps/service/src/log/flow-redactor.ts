import { CREDENTIAL_LIMITS } from "../credential/limits.ts";
import type { SecretRedactor } from "../credential/redactor.ts";
import { createLineRedactor, type LineRedactor, type WordsRedactor } from "./line-redactor.ts";

const { followedSourcesMax, pieceCharactersMax } = CREDENTIAL_LIMITS;

/**
 * For the lines of one process, in their order: what a program wraps is cut by line ends, and each line by itself holds
 * only a part that nobody would know. What came before is kept in memory, so far as a secret could begin in it.
 */
export function createFlowRedactor(redactor: SecretRedactor): LineRedactor {
  const ends = new Map<unknown, string>();
  const words: WordsRedactor = (line, source, isCut) => {
    const before = ends.get(source) ?? "";
    const own = line.trimStart();
    const shown = line.slice(0, line.length - own.length) + redactor.following(before, own);
    // Of a line that was cut, the next one is no continuation.
    const end = isCut ? "" : (before + own).slice(1 - pieceCharactersMax);
    if (ends.has(source) || ends.size < followedSourcesMax) ends.set(source, end);
    return isCut ? redactor.text(shown, { isCut }).text : shown;
  };
  return createLineRedactor(redactor, words);
}
