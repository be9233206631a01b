import type { Facts } from "./cel/evaluate.ts";
import type { Guard } from "./cel/guard.ts";
import { EVENT_TYPE_NAMES, type EventType, typesThatCarry } from "./event/event-table.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { onceEach } from "./once-each.ts";
import type { Rule } from "./rule.ts";

/** Ranks of rules: their places in the order of judgement. */
type Ranks = number[];

/** The rules of one event type whose first condition is about one field. */
interface FieldBucket {
  readonly path: string;
  readonly equal: Map<string, Ranks>;
  readonly within: Map<string, Ranks>;
}

interface TypeIndex {
  readonly fields: readonly FieldBucket[];
  /** By one field that must be there. */
  readonly present: readonly (readonly [path: string, ranks: Ranks])[];
  readonly always: Ranks;
  /** The first rules that allow such events, for who was refused. */
  readonly hints: readonly RankedHint[];
}

export interface Hint {
  readonly rule_id: string;
  readonly match: string;
}

/** A hint with the priority of its rule. */
interface RankedHint {
  readonly hint: Hint;
  readonly priority: number;
}

/** Finds the rules that may match an event, without evaluating any. It never leaves one out that would. */
export interface RuleIndex {
  readonly candidates: (type: EventType, facts: Facts) => readonly Rule[];
  /** Of rules that come before `priority`: what decides there is decided by none that comes later. */
  readonly hints: (type: EventType, priority: number) => readonly Hint[];
}

/** `rules` in the order of judgement. */
export function createRuleIndex(rules: readonly Rule[]): RuleIndex {
  const byType = new Map<EventType, TypeIndex>();
  const ranks = new Map<EventType, Ranks>();
  for (const [rank, rule] of rules.entries()) for (const type of typesOf(rule)) push(ranks, type, rank);
  for (const type of EVENT_TYPE_NAMES) byType.set(type, typeIndex(rules, ranks.get(type) ?? []));
  return Object.freeze({
    hints(type: EventType, priority: number) {
      const before = byType.get(type)?.hints.filter((each) => each.priority < priority) ?? [];
      return before.map(({ hint }) => hint);
    },
    candidates(type: EventType, facts: Facts) {
      const index = byType.get(type);
      return index === undefined ? [] : collect(index, facts).map((rank) => rules[rank] as Rule);
    },
  });
}

/** The event types that a rule can match at all. */
export function typesOf({ guard }: Pick<Rule, "guard">): readonly EventType[] {
  return placeOf(guard).types;
}

/** Where a rule stands in the index. Rules of one condition have one guard, whenever they were read. */
interface Place {
  readonly types: readonly EventType[];
  /** The rarest of the names that must be there. */
  readonly name: string | undefined;
}

const placeOf = onceEach(({ needs, key, types }: Guard): Place => {
  const carry = typesThatCarry(key === undefined ? needs : [...needs, key.path]);
  // The deepest name is the rarest.
  const [name] = [...needs].sort((a, b) => b.split(".").length - a.split(".").length);
  return { types: types === undefined ? carry : carry.filter((type) => types.has(type)), name };
});

function typeIndex(rules: readonly Rule[], ranks: Ranks): TypeIndex {
  const fields = new Map<string, FieldBucket>();
  const present = new Map<string, Ranks>();
  const always: Ranks = [];
  for (const rank of ranks) {
    const { guard } = rules[rank] as Rule;
    const { key } = guard;
    if (key !== undefined) {
      const bucket = fields.get(key.path) ?? { path: key.path, equal: new Map(), within: new Map() };
      fields.set(key.path, bucket);
      for (const value of key.equal) push(bucket.equal, value, rank);
      for (const value of key.within) push(bucket.within, value, rank);
    } else {
      const { name } = placeOf(guard);
      if (name === undefined || name === "event.type") always.push(rank);
      else push(present, name, rank);
    }
  }
  return {
    fields: [...fields.values()],
    present: [...present],
    always,
    hints: hintsOf(ranks.map((rank) => rules[rank] as Rule)),
  };
}

function hintsOf(rules: readonly Rule[]): readonly RankedHint[] {
  const allowing = rules.filter((rule) => rule.action === "allow").slice(0, POLICY_LIMITS.hintsMax);
  return allowing.map(({ id, condition, priority }) => {
    return { hint: Object.freeze({ rule_id: id, match: condition.source.trim() }), priority };
  });
}

function push(map: Map<string, Ranks>, key: string, rank: number): void {
  const ranks = map.get(key);
  if (ranks === undefined) map.set(key, [rank]);
  else ranks.push(rank);
}

/** Ascending, each once. */
function collect(index: TypeIndex, facts: Facts): Ranks {
  const found: Ranks = [...index.always];
  for (const { path, equal, within } of index.fields) {
    const value = facts.get(path);
    if (typeof value !== "string") continue;
    add(found, equal.get(value));
    if (within.size > 0) addWithin(found, within, value);
  }
  for (const [path, ranks] of index.present) if (facts.has(path)) add(found, ranks);
  if (found.length < 2) return found;
  found.sort((a, b) => a - b);
  return found.filter((rank, place) => rank !== found[place - 1]);
}

function add(found: Ranks, ranks: Ranks | undefined): void {
  if (ranks !== undefined) for (const rank of ranks) found.push(rank);
}

/** A domain covers the host itself and every name that ends with a dot and the domain. */
function addWithin(found: Ranks, within: ReadonlyMap<string, Ranks>, host: string): void {
  add(found, within.get(host));
  for (let dot = host.indexOf("."); dot >= 0; dot = host.indexOf(".", dot + 1)) {
    add(found, within.get(host.slice(dot + 1)));
  }
}
