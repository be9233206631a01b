import type { Random } from "./random.ts";

const ATOMS = [
  "a",
  "b",
  "K",
  "é",
  "💥",
  ".",
  "\\b",
  "\\B",
  "^",
  "$",
  "\\A",
  "\\z",
  "\\d",
  "\\w",
  "\\W",
  "\\s",
  "[ab]",
  "[^a]",
  "[a-k]",
  "[^\\n_]",
  "[[:alpha:]]",
  "\\pL",
  "\\P{Greek}",
  "[\\x{80}-\\x{3ff}]",
  "\\x41",
  "\\n",
  "\\.",
  "\\Qa.b\\E",
  "(?i)",
  "(?m)",
  "(?s)",
  "",
] as const;
const REPETITIONS = ["*", "+", "?", "*?", "+?", "{2}", "{0,3}", "{2,}", "{1,3}?", "{0}"] as const;

/** Syntax of RE2 of every kind; a few are no pattern. */
export function randomPattern(random: Random, depth = 0): string {
  const parts = Array.from({ length: 1 + random.below(4) }, () => {
    const inner = () => randomPattern(random, depth + 1);
    switch (random.below(depth > 2 ? 3 : 7)) {
      case 3:
        return `(${inner()})`;
      case 4:
        return `(?:${inner()}|${inner()})${random.pick(REPETITIONS)}`;
      case 5:
        return `(?${random.pick(["i", "m", "s", "-i"])}:${inner()})`;
      case 6:
        return `(${inner()})${random.pick(REPETITIONS)}`;
      default: {
        const atom = random.pick(ATOMS);
        return random.chance(4) && /^(\w|\[|\\[dwWspP])/.test(atom) ? atom + random.pick(REPETITIONS) : atom;
      }
    }
  });
  return parts.join(random.chance(8) ? "|" : "");
}

const PIECES = [
  "a",
  "b",
  "k",
  "K",
  "\u212a",
  "A",
  "é",
  "É",
  "α",
  "💥",
  "\ud800",
  "\n",
  "_",
  " ",
  "7",
  ".",
  "ab",
  "aaa",
];

export function randomText(random: Random): string {
  return Array.from({ length: random.below(14) }, () => random.pick(PIECES)).join("");
}
