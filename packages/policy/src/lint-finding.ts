import type { Position } from "./fault.ts";

/** What the linter says of a rule, from the one that it must not be to the one that somebody may want so. */
export const FINDING_KINDS = [
  /** No event can match it. */
  "dead",
  /** No event of this version can match it. */
  "unobserved",
  /** It matches, and nobody carries out what it says. */
  "inert",
  /** A text in it holds a character that its author hardly wrote on purpose. */
  "suspect",
  /** It asks, and no answer can be for always. */
  "no_always",
  /** Whatever it matches is decided by the other one first. */
  "shadowed",
  /** Both have one priority, decide otherwise, and one matches whatever the other does. */
  "contradicting",
  /** It and the rules after it were not compared with the others: that was too much work. */
  "uncompared",
] as const;
export type FindingKind = (typeof FINDING_KINDS)[number];

export interface LintFinding {
  readonly kind: FindingKind;
  readonly rule_id: string;
  readonly other_id: string | undefined;
  readonly message: string;
  readonly at: Position | undefined;
}
