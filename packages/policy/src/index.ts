export { type AllowRule, allowRuleFor } from "./allow-rule.ts";
export { argumentRules, mayConcernTool } from "./argument-rules.ts";
export { boundLabels, LABEL_PATHS, type LabelPath } from "./bound-labels.ts";
export { type Condition, type ConditionFault, compileCondition, isCondition } from "./cel/condition.ts";
export {
  type Decision,
  decide,
  decideUnindexed,
  type Explanation,
  type MatchedRule,
  reasonGiven,
  type Why,
} from "./decide.ts";
export { applyEdits, type EditedLayers, type PolicyEdit } from "./edit.ts";
export {
  type EventFields,
  type EventIdentity,
  eventFromJson,
  SecurityEvent,
  type StoredEvent,
  securityEvent,
} from "./event/event.ts";
export {
  EVENT_TYPE_NAMES,
  EVENT_TYPES,
  type EventType,
  fieldArrival,
  isEventType,
  typeArrival,
} from "./event/event-table.ts";
export { FIELD_PATHS, FIELDS, type FieldPath } from "./event/field-table.ts";
export { canonicalHost, canonicalIp } from "./event/host.ts";
export type { JsonValue } from "./event/value.ts";
export { renderDecision } from "./explain.ts";
export {
  type Checked,
  FAULT_CODES,
  type FaultCode,
  type PolicyFault,
  type Position,
  renderFault,
} from "./fault.ts";
export {
  CLEAN,
  type Confidentiality,
  type Integrity,
  isCovered,
  join,
  joinAll,
  type Label,
  label,
  labelFields,
} from "./label.ts";
export { emptyLayer, joinLayers, type PolicyLayer, parseLayer } from "./layer.ts";
export { type PatchedText, patchLayerText, patchSlices } from "./layer-text.ts";
export { POLICY_LIMITS } from "./limits.ts";
export { lintRules, lintSlices } from "./lint.ts";
export { FINDING_KINDS, type FindingKind, type LintFinding } from "./lint-finding.ts";
export {
  MCP_DEFAULT_RULE,
  type McpPermission,
  type McpRuleEdit,
  mcpDefaultIn,
  mcpDefaultRule,
  mcpToolIn,
  mcpToolRule,
  mcpToolRuleId,
  mcpToolRulesOf,
} from "./mcp-rules.ts";
export { PRESET_NAMES, type PresetName } from "./preset-names.ts";
export { PRESETS } from "./preset-table.ts";
export { renderActivePolicy, renderLayer, ruleText, serverText } from "./render.ts";
export { type Replay, type ReplayOptions, replay, type WasDecision } from "./replay.ts";
export {
  type DecisionAction,
  type DetectionLevel,
  type Rule,
  type RuleAction,
  type RuleSource,
  ruleId,
  stricter,
} from "./rule.ts";
export { typesOf } from "./rule-index.ts";
export { type RuleJson, ruleJson } from "./rule-json.ts";
export {
  HIDDEN_VALUE,
  RESERVED_SERVERS,
  SERVER_PROTOCOLS,
  SERVER_TRANSPORTS,
  type ServerDeclaration,
  serverKey,
  USUAL_SERVER,
  withoutHeaderValues,
} from "./server-declaration.ts";
export { SERVER_KEYS, type ServerKey } from "./server-fields.ts";
export { mergeServers, type ServerInForce, tooManyServers } from "./servers.ts";
export { type MergedSettings, mergeSettings, type SettingSource } from "./settings.ts";
export {
  SETTING_KEYS,
  SETTINGS,
  type SettingKey,
  type Settings,
  type SettingValue,
} from "./settings-table.ts";
export { compileSnapshot, type Digest, POLICY_VERSION, type PolicySnapshot } from "./snapshot.ts";
export { standingBlock } from "./standing-block.ts";
export { ruleThatHangs } from "./unseen.ts";
