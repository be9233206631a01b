import { type PolicyLayer, type Rule, ruleText, type SettingKey } from "@capsem/policy";
import type { PolicyMove } from "./policy-store.ts";

/** One thing that a layer says differently. Null: it said, or says, nothing of it. */
export interface PolicyDifference {
  /** `limits.idle_secs`, `profiles.rules.NAME` and the like. */
  readonly key: string;
  readonly source: "user" | "corp";
  readonly before: string | null;
  readonly after: string | null;
}

/** What has changed: the user's keys first, each layer's in order. */
export function differencesOf({ before, after }: PolicyMove): PolicyDifference[] {
  return [
    ...layerDifferences("user", before.user.whole, after.user.whole),
    ...layerDifferences("corp", before.corp.whole, after.corp.whole),
  ];
}

/** What a layer says of a setting or a rule, as text for the record. */
export function wordOf(layer: PolicyLayer, key: string): string | null {
  const setting = layer.settings.get(key as SettingKey);
  if (setting !== undefined) return JSON.stringify(setting);
  const rule = layer.rules.find(({ id }) => id === key);
  return rule === undefined ? null : ruleText(rule);
}

function layerDifferences(
  source: PolicyDifference["source"],
  before: PolicyLayer,
  after: PolicyLayer,
): PolicyDifference[] {
  if (before === after) return [];
  const [old, now] = [wordsOf(before), wordsOf(after)];
  return [...new Set([...old.keys(), ...now.keys()])]
    .sort()
    .map((key) => ({ key, source, before: old.get(key) ?? null, after: now.get(key) ?? null }))
    .filter((difference) => difference.before !== difference.after);
}

function wordsOf({ settings, rules }: PolicyLayer): Map<string, string> {
  return new Map([
    ...[...settings].map(([key, value]) => [key, JSON.stringify(value)] as const),
    ...rules.map((rule: Rule) => [rule.id, ruleText(rule)] as const),
  ]);
}
