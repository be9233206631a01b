import { applyEdits, type EditedLayers, type PolicyEdit } from "./edit.ts";
import type { Checked } from "./fault.ts";
import { type PolicyLayer, parseLayer } from "./layer.ts";
import { renderLayer, ruleFields, settingText } from "./render.ts";
import { RULE_SOURCES, type Rule } from "./rule.ts";
import { outlineToml, type TomlNode } from "./toml.ts";
import { TomlPatch } from "./toml-patch.ts";

export interface PatchedText {
  readonly text: string;
  /** What `text` says, read from it. */
  readonly layer: PolicyLayer;
  /** False when the file had to be written anew, without its comments. */
  readonly keptComments: boolean;
}

/**
 * The text of the user's `settings.toml` with a batch of edits made, or every reason why none is. The text itself
 * says what there is to edit. What is not edited stays byte for byte; the result is read again and says exactly what
 * `applyEdits` says. A deleted rule takes along the comments in its table and directly above its header, and one run
 * of blank lines; a key that is reset takes its own line alone. Comments inside a value that is replaced go with it.
 */
export function patchLayerText(
  text: string,
  layers: Omit<EditedLayers, "user">,
  edits: readonly PolicyEdit[],
): Checked<PatchedText> {
  const before = parseLayer("user", text);
  if (before.kind === "refused") return before;
  const outline = outlineToml(text);
  if (outline.kind === "refused") return outline;
  const after = applyEdits({ ...layers, user: before.value }, edits);
  if (after.kind === "refused") return after;
  return provenText(patched(text, outline.value, before.value, after.value), after.value);
}

/** The candidate when it says what is wanted; else a text that does, without the comments of the old one. */
export function provenText(candidate: string, wanted: PolicyLayer): Checked<PatchedText> {
  const read = parseLayer("user", candidate);
  if (read.kind === "ok" && isSame(read.value, wanted)) {
    return { kind: "ok", value: { text: candidate, layer: read.value, keptComments: true } };
  }
  const text = renderLayer(wanted);
  const rendered = parseLayer("user", text);
  if (rendered.kind === "refused") return rendered;
  return { kind: "ok", value: { text, layer: rendered.value, keptComments: false } };
}

/** The order of rules in a file means nothing, and neither does where they stand. */
function isSame(a: PolicyLayer, b: PolicyLayer): boolean {
  return canonical(a) === canonical(b);
}

function canonical(layer: PolicyLayer): string {
  return renderLayer({ ...layer, rules: [...layer.rules].sort((a, b) => (a.id < b.id ? -1 : 1)) });
}

function patched(text: string, nodes: readonly TomlNode[], before: PolicyLayer, after: PolicyLayer): string {
  const patch = new TomlPatch(text, nodes);
  for (const key of before.settings.keys()) {
    if (!after.settings.has(key)) patch.remove(key.split("."));
  }
  for (const [key, value] of after.settings) {
    const old = before.settings.get(key);
    const written = settingText(value);
    if (old === undefined || settingText(old) !== written) patch.set(key.split("."), written);
  }
  const rules = new Map(after.rules.map((rule) => [rule.id, rule]));
  for (const rule of before.rules) {
    const now = rules.get(rule.id);
    if (now === undefined) patch.remove(pathOf(rule));
    else patchRule(patch, rule, now);
    rules.delete(rule.id);
  }
  for (const rule of rules.values()) patch.addTable(pathOf(rule), ruleFields(rule));
  return patch.result();
}

/** Keys that say the same stay as they are written. One that is back to the usual value says so. */
function patchRule(patch: TomlPatch, before: Rule, after: Rule): void {
  const [old, now] = [ruleFields(before), ruleFields(after)];
  const usual = new Map([
    ["priority", String(RULE_SOURCES.user.usual)],
    ["detection_level", '"none"'],
    ["reason", '""'],
    ["enabled", "true"],
  ]);
  for (const key of new Set([...old.keys(), ...now.keys()])) {
    const value = now.get(key) ?? usual.get(key);
    if (value !== undefined && old.get(key) !== now.get(key)) patch.set([...pathOf(after), key], value);
  }
}

function pathOf(rule: Rule): readonly string[] {
  return [...RULE_SOURCES.user.table, rule.name];
}
