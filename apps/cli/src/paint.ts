import type { Powers } from "./powers.ts";

export type Color = "red" | "green" | "yellow" | "cyan" | "dim" | "bold";
export type Paint = (text: string, color: Color) => string;

const CODES: Readonly<Record<Color, number>> = { red: 31, green: 32, yellow: 33, cyan: 36, dim: 2, bold: 1 };

/** Colours on a terminal that has them, and whose user did not say otherwise (no-color.org). */
export function paintOf({ stdout, env }: Pick<Powers, "stdout" | "env">): Paint {
  const isPlain = !stdout.isTerminal || env.TERM === "dumb" || (env.NO_COLOR ?? "") !== "";
  if (isPlain) return (text) => text;
  return (text, color) => (text === "" ? "" : `\x1b[${CODES[color]}m${text}\x1b[0m`);
}

/** What was decided, or how it ended. */
export function colorOf(word: string): Color | null {
  if (["block", "blocked", "denied", "failed", "corp", "broken"].includes(word)) return "red";
  if (["ask", "pending", "expired", "interrupted", "cancelled"].includes(word)) return "yellow";
  if (["allow", "approved", "done", "whole"].includes(word)) return "green";
  return null;
}
