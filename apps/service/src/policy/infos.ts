import type {
  CorpInfo,
  LintFindingInfo,
  RuleInfo,
  ServiceStatus,
  SettingInfo,
  SettingList,
} from "@capsem/api";
import {
  type LintFinding,
  type Rule,
  ruleJson,
  SETTING_KEYS,
  SETTINGS,
  type SettingKey,
  type SettingValue,
} from "@capsem/policy";
import { type PolicyState, sha256 } from "./policy-state.ts";
import type { PolicyStore } from "./policy-store.ts";

/** Every rule in the order of judgement, those that are switched off at their places. */
export function ruleInfos({ user, corp, snapshot }: PolicyState): RuleInfo[] {
  const builtin = snapshot.rules.filter(({ source }) => source === "builtin");
  const rules = [...corp.whole.rules, ...user.whole.rules, ...builtin];
  rules.sort((a, b) => a.priority - b.priority || (a.id < b.id ? -1 : 1));
  return rules.map((rule) => ruleInfo(rule, { user, corp }));
}

function ruleInfo(rule: Rule, { user, corp }: Pick<PolicyState, "user" | "corp">): RuleInfo {
  const { line = null, ...json } = ruleJson(rule);
  const file = (rule.source === "corp" ? corp : user).fileOf.get(rule.id) ?? null;
  if (rule.source === "builtin") return { ...json, file: null, line: null, is_locked: true };
  return { ...json, file, line, is_locked: rule.source === "corp" || file !== user.name };
}

export function findingInfos(findings: readonly LintFinding[]): LintFindingInfo[] {
  return findings.map(({ kind, rule_id, other_id = null, message, at }) => {
    return { kind, rule_id, other_id, message, line: at?.line ?? null };
  });
}

export function settingList(store: PolicyStore): SettingList {
  const { user, snapshot } = store.state;
  const { values, sources, locked } = snapshot.settings;
  const settings = SETTING_KEYS.map(
    (key): SettingInfo => ({
      key,
      value: plain(values[key]),
      default: plain(SETTINGS[key].usual),
      source: sources.get(key) ?? "builtin",
      is_locked: locked.has(key) || "isCorpOnly" in SETTINGS[key],
      // All of them are read whenever they are needed.
      needs_restart: false,
      takes: takesOf(key),
      doc: SETTINGS[key].doc,
    }),
  );
  return { file: user.path, digest: snapshot.digest, settings, faults: [...store.faults] };
}

/** In words: `a whole number from 0 to 16`. */
export function takesOf(key: SettingKey): string {
  const { shape } = SETTINGS[key];
  switch (shape.kind) {
    case "int":
      return `a whole number from ${shape.least} to ${shape.most}`;
    case "number":
      return `a number from ${shape.least} to ${shape.most}${"step" in shape ? ` in steps of ${shape.step}` : ""}`;
    case "flag":
      return "true or false";
    case "choice":
      return `one of ${shape.of.join(", ")}`;
    case "texts":
      return `a list of at most ${shape.itemsMax} texts`;
  }
}

export function corpInfo(store: PolicyStore): CorpInfo {
  const { corp, snapshot } = store.state;
  const texts = [...corp.texts.values()];
  return {
    file: corp.path,
    is_present: corp.text !== null,
    digest: corp.text === null ? null : sha256(JSON.stringify(texts)),
    rules: corp.whole.rules.length,
    locked: [...snapshot.settings.locked].sort(),
    faults: [...store.corpFaults],
  };
}

export function policyStatus(store: PolicyStore): ServiceStatus["policy"] {
  const { corp, snapshot } = store.state;
  const { preset, digest, rules } = snapshot;
  return {
    preset,
    digest,
    rules: rules.length,
    has_corp: corp.text !== null,
    faults: store.faults.length,
  };
}

function plain(value: SettingValue): SettingInfo["value"] {
  return typeof value === "object" ? [...value] : value;
}
