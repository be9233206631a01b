import { POLICY_LIMITS } from "./limits.ts";

/** From free to guarded: joining takes the right-most. */
export const CONFIDENTIALITY = ["public", "internal", "secret"] as const;
/** From sound to doubtful: joining takes the right-most. */
export const INTEGRITY = ["trusted", "user", "untrusted"] as const;
export type Confidentiality = (typeof CONFIDENTIALITY)[number];
export type Integrity = (typeof INTEGRITY)[number];

/** What a value is tainted with. Frozen; its sources are sorted and without doubles. */
export interface Label {
  readonly confidentiality: Confidentiality;
  readonly integrity: Integrity;
  readonly sources: readonly string[];
}

/** The one source of a label that has more than can be listed. */
export const ANY_SOURCE = "*";

export function label(
  confidentiality: Confidentiality,
  integrity: Integrity,
  sources: readonly string[] = [],
): Label {
  const names = [...new Set(sources)].sort();
  const isOver = names.length > POLICY_LIMITS.labelSourcesMax || names.includes(ANY_SOURCE);
  return Object.freeze({
    confidentiality,
    integrity,
    sources: Object.freeze(isOver ? [ANY_SOURCE] : names),
  });
}

/** Taints nothing: joining with it changes nothing. */
export const CLEAN: Label = label("public", "trusted");

function higher<T extends string>(order: readonly T[], a: T, b: T): T {
  return order.indexOf(a) >= order.indexOf(b) ? a : b;
}

/** The least label that covers both. Commutative, associative, idempotent; it never goes down. */
export function join(a: Label, b: Label): Label {
  return label(
    higher(CONFIDENTIALITY, a.confidentiality, b.confidentiality),
    higher(INTEGRITY, a.integrity, b.integrity),
    [...a.sources, ...b.sources],
  );
}

export function joinAll(labels: Iterable<Label>): Label {
  let joined = CLEAN;
  for (const one of labels) joined = join(joined, one);
  return joined;
}

/** True when everything in `low` is also in `high`: `join(low, high)` is then `high`. */
export function isCovered(low: Label, high: Label): boolean {
  return (
    CONFIDENTIALITY.indexOf(low.confidentiality) <= CONFIDENTIALITY.indexOf(high.confidentiality) &&
    INTEGRITY.indexOf(low.integrity) <= INTEGRITY.indexOf(high.integrity) &&
    (high.sources.includes(ANY_SOURCE) || low.sources.every((source) => high.sources.includes(source)))
  );
}

/** The levels that `tainted(label, …)` asks for; `public` and `trusted` would be true of everything. */
export const TAINT_LEVELS = ["internal", "secret", "user", "untrusted"] as const;
export type TaintLevel = (typeof TAINT_LEVELS)[number];

/** At `level` or worse. */
export function isTainted(confidentiality: string, integrity: string, level: TaintLevel): boolean {
  if (level === "internal") return confidentiality === "internal" || confidentiality === "secret";
  if (level === "secret") return confidentiality === "secret";
  if (level === "user") return integrity === "user" || integrity === "untrusted";
  return integrity === "untrusted";
}

/** The fields of an event that carry a label. */
export function labelFields(one: Label) {
  return {
    "label.confidentiality": one.confidentiality,
    "label.integrity": one.integrity,
    "label.sources": one.sources,
  };
}
