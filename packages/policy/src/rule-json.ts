import type { DetectionLevel, Rule, RuleAction, RuleSource } from "./rule.ts";

/** A rule in a list, in the words of its file. */
export interface RuleJson {
  readonly id: string;
  readonly name: string;
  readonly source: RuleSource;
  readonly action: RuleAction;
  readonly match: string;
  readonly detection_level: DetectionLevel;
  readonly priority: number;
  readonly reason: string;
  readonly enabled: boolean;
  /** Of its file; absent for a rule that came by a route. */
  readonly line?: number;
}

export function ruleJson(rule: Rule): RuleJson {
  return {
    id: rule.id,
    name: rule.name,
    source: rule.source,
    action: rule.action,
    match: rule.condition.source,
    detection_level: rule.detection,
    priority: rule.priority,
    reason: rule.reason,
    enabled: rule.isEnabled,
    ...(rule.at === undefined ? {} : { line: rule.at.line }),
  };
}
