import { assert } from "@capsem/base";
import { canonicalText } from "./cel/expression.ts";
import { EVENT_TYPE_NAMES, type EventType } from "./event/event-table.ts";
import type { FieldPath } from "./event/field-table.ts";
import type { Checked } from "./fault.ts";
import { emptyLayer, type PolicyLayer, parseLayer } from "./layer.ts";
import type { PresetName } from "./preset-names.ts";
import { PRESETS } from "./preset-table.ts";
import { DECISIONS, type DecisionAction, inOrder, type Rule } from "./rule.ts";
import { createRuleIndex, type RuleIndex } from "./rule-index.ts";
import { mergeServers, type ServerInForce } from "./servers.ts";
import { type MergedSettings, mergeSettings } from "./settings.ts";
import { createReads } from "./snapshot-reads.ts";

/** Changes when the meaning of rules or settings changes: it is part of every digest. */
export const POLICY_VERSION = 2;

/** Turns text into a fixed short name of it. The caller's, because this package has no cryptography. */
export type Digest = (text: string) => string;

/** The compiled rules and settings of one moment. Nothing in it changes; a reload makes another one. */
export interface PolicySnapshot {
  readonly version: number;
  /** Equal digests decide every event equally. */
  readonly digest: string;
  readonly preset: PresetName;
  /** What happens where no rule matches. */
  readonly posture: ReadonlyMap<EventType, DecisionAction>;
  /** All enabled rules, in the order of judgement. */
  readonly rules: readonly Rule[];
  readonly settings: MergedSettings;
  /** Declared tool servers by name. */
  readonly servers: ReadonlyMap<string, ServerInForce>;
  readonly index: RuleIndex;
  /** False where no decision depends on the field, so that nobody need collect it. */
  readonly reads: (path: FieldPath) => boolean;
}

/** Compiles what the user and the corporation said, on top of the preset that they chose. */
export function compileSnapshot(
  layers: { readonly user?: PolicyLayer; readonly corp?: PolicyLayer },
  digest: Digest,
): PolicySnapshot {
  const user = layers.user ?? emptyLayer("user");
  const corp = layers.corp ?? emptyLayer("corp");
  const settings = mergeSettings(user.settings, corp.settings);
  const servers = mergeServers(user.servers, corp.servers);
  const preset = settings.values["profiles.preset"];
  const builtin = presetLayer(preset);
  const rules = [...corp.rules, ...user.rules, ...builtin.rules].filter((rule) => rule.isEnabled);
  rules.sort(inOrder);
  const posture = postureOf(preset, builtin);
  return Object.freeze({
    version: POLICY_VERSION,
    digest: digest(digestText(rules, posture, settings, servers)),
    preset,
    posture,
    rules: Object.freeze(rules),
    settings,
    servers,
    index: createRuleIndex(rules),
    reads: createReads(rules),
  });
}

const presetLayers = new Map<PresetName, PolicyLayer>();

/** The rules of a preset, read once. They are ours: a fault in one is a bug. */
export function presetLayer(preset: PresetName): PolicyLayer {
  const known = presetLayers.get(preset) ?? readPreset(preset);
  presetLayers.set(preset, known);
  return known;
}

function readPreset(preset: PresetName): PolicyLayer {
  const parsed: Checked<PolicyLayer> = parseLayer("builtin", PRESETS[preset]);
  assert(parsed.kind === "ok", `preset ${preset} does not compile`);
  return parsed.value;
}

function postureOf(preset: PresetName, layer: PolicyLayer): ReadonlyMap<EventType, DecisionAction> {
  const posture = new Map<EventType, DecisionAction>();
  for (const type of EVENT_TYPE_NAMES) {
    const action = DECISIONS.find((word) => word === layer.posture.get(type));
    assert(action !== undefined, `preset ${preset} says nothing of ${type}`);
    posture.set(type, action);
  }
  assert(layer.posture.size === posture.size, `preset ${preset} speaks of unknown event types`);
  return posture;
}

/**
 * Everything that a decision can depend on, and what servers there are. Not the values of their headers: who decides
 * comes to the same digest without knowing one.
 */
function digestText(
  rules: readonly Rule[],
  posture: ReadonlyMap<EventType, DecisionAction>,
  settings: MergedSettings,
  servers: ReadonlyMap<string, ServerInForce>,
): string {
  return JSON.stringify({
    version: POLICY_VERSION,
    posture: [...posture],
    settings: Object.entries(settings.values).sort(([a], [b]) => (a < b ? -1 : 1)),
    locked: [...settings.locked].sort(),
    servers: [...servers.values()].map((server) => [
      server.name,
      server.source,
      server.url,
      server.transport,
      server.protocol,
      server.isEnabled,
      server.grants,
      [...server.headers.keys()].sort(),
      server.timeoutSecs,
    ]),
    rules: rules.map(({ id, action, condition, detection, priority, reason }) => [
      id,
      action,
      canonicalText(condition.expression),
      detection,
      priority,
      reason,
    ]),
  });
}
