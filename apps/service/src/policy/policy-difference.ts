import {
  type PolicyLayer,
  ruleText,
  type ServerDeclaration,
  type SettingKey,
  serverKey,
  serverText,
  withoutHeaderValues,
} from "@capsem/policy";
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

/** What a layer says of a setting, a rule or a tool server, as text for the record. */
export function wordOf(layer: PolicyLayer, key: string): string | null {
  const setting = layer.settings.get(key as SettingKey);
  if (setting !== undefined) return JSON.stringify(setting);
  const server = [...layer.servers.values()].find(({ name }) => serverKey(name) === key);
  if (server !== undefined) return recordOf(server);
  const rule = layer.rules.find(({ id }) => id === key);
  return rule === undefined ? null : ruleText(rule);
}

/** Headers by name alone: a value may be a secret that nobody registered. */
function recordOf(server: ServerDeclaration): string {
  return serverText(withoutHeaderValues(server));
}

function layerDifferences(
  source: PolicyDifference["source"],
  before: PolicyLayer,
  after: PolicyLayer,
): PolicyDifference[] {
  if (before === after) return [];
  const [old, now] = [saidBy(before), saidBy(after)];
  return [...new Set([...old.keys(), ...now.keys()])]
    .sort()
    .filter((key) => old.get(key) !== now.get(key))
    .map((key) => ({ key, source, before: wordOf(before, key), after: wordOf(after, key) }));
}

/** By key, whole: two header values are recorded alike and are two. */
function saidBy({ settings, rules, servers }: PolicyLayer): Map<string, string> {
  return new Map([
    ...[...settings].map(([key, value]) => [key, JSON.stringify(value)] as const),
    ...[...servers.values()].map((server) => [serverKey(server.name), serverText(server)] as const),
    ...rules.map((rule) => [rule.id, ruleText(rule)] as const),
  ]);
}
