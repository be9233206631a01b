import type { SecretRedactor } from "../credential/redactor.ts";
import { LOG_LIMITS } from "../limits.ts";

/** One line as it may be stored. `isCut`: it went on, and the rest of it is gone. */
export type LineRedactor = (line: string, isCut?: boolean) => string;

/** For who has no secrets to hide: tests, and programs that start before any is known. */
export const plainLines: LineRedactor = (line) => line;

/** Words of a line, and whose they are. */
export type WordsRedactor = (words: string, source: unknown, isCut: boolean) => string;

/**
 * Replaces secrets in log lines. A line of JSON is looked into, so that it stays one and no way of escaping hides
 * anything; a line within it, as owners pass on, is a line again.
 */
export function createLineRedactor(
  redactor: SecretRedactor,
  words: WordsRedactor = (line, _source, isCut) => redactor.text(line, { isCut }).text,
): LineRedactor {
  const redacted = (line: string, isCut: boolean, source: unknown): string => {
    if (redactor.isEmpty) return line;
    const record = recordIn(line);
    if (record === null) return words(line, source, isCut);
    const inner =
      typeof record.line === "string"
        ? redacted(record.line, isCutByOwner(record.line), record.source)
        : null;
    const passed = inner === null || inner === record.line ? record : { ...record, line: inner };
    const { value, isRedacted } = redactor.json(passed);
    const shown = isRedacted || passed !== record ? JSON.stringify(value) : line;
    // What is left is no text in it: a number, or words that reach from one text into the next.
    const rest = redactor.text(shown);
    return rest.isRedacted ? JSON.stringify({ ...wordsOf(value), message: rest.text }) : shown;
  };
  return (line, isCut = false) => redacted(line, isCut, null);
}

/** An owner cuts its guest's lines, and says nothing of it. */
function isCutByOwner(line: string): boolean {
  return Buffer.byteLength(line) >= LOG_LIMITS.ownerLineBytesMin;
}

function wordsOf({ source, time, level }: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return { source, time, level };
}

function recordIn(line: string): Readonly<Record<string, unknown>> | null {
  if (!line.startsWith("{")) return null;
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? { ...value } : null;
  } catch {
    // Cut, or no JSON after all: words like any other.
    return null;
  }
}
