import { applyEdits, type EditedLayers, type PolicyEdit } from "./edit.ts";
import type { Checked } from "./fault.ts";
import { layerOf, type PolicyLayer, parseLayer } from "./layer.ts";
import {
  renderLayer,
  ruleFields,
  serverFields,
  serverTable,
  settingText,
  usualServerFields,
} from "./render.ts";
import { RULE_SOURCES, type Rule } from "./rule.ts";
import { SERVER_TABLE, type ServerDeclaration } from "./server-declaration.ts";
import { outlineToml, readTomlWithOutline, type TomlNode } from "./toml.ts";
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
  return allOf(patchSlices(text, { ...layers, user: before.value }, edits));
}

/**
 * As `patchLayerText`, a step at a time: who has other things to do looks after them in between. `layers.user` is what
 * `text` says.
 */
export function* patchSlices(
  text: string,
  layers: EditedLayers,
  edits: readonly PolicyEdit[],
): Generator<void, Checked<PatchedText>> {
  const outline = outlineOf(text, layers.user);
  if (outline.kind === "refused") return outline;
  yield;
  const after = applyEdits(layers, edits);
  if (after.kind === "refused") return after;
  const candidate = patched(text, outline.value, layers.user, after.value);
  yield;
  return yield* provenSlices(candidate, after.value);
}

/** The candidate when it says what is wanted; else a text that does, without the comments of the old one. */
export function provenText(candidate: string, wanted: PolicyLayer): Checked<PatchedText> {
  return allOf(provenSlices(candidate, wanted));
}

function* provenSlices(candidate: string, wanted: PolicyLayer): Generator<void, Checked<PatchedText>> {
  const toml = readTomlWithOutline(candidate);
  yield;
  const read = toml.kind === "ok" ? layerOf("user", toml.value.entries) : toml;
  yield;
  if (toml.kind === "ok" && read.kind === "ok" && isSame(read.value, wanted)) {
    OUTLINES.set(read.value, { of: candidate, outline: toml.value.outline });
    return { kind: "ok", value: { text: candidate, layer: read.value, keptComments: true } };
  }
  const text = renderLayer(wanted);
  yield;
  const rendered = parseLayer("user", text);
  if (rendered.kind === "refused") return rendered;
  return { kind: "ok", value: { text, layer: rendered.value, keptComments: false } };
}

/** Of layers that an edit made, which the next edit begins with. */
const OUTLINES = new WeakMap<PolicyLayer, { readonly of: string; readonly outline: readonly TomlNode[] }>();

function outlineOf(text: string, layer: PolicyLayer): Checked<readonly TomlNode[]> {
  const known = OUTLINES.get(layer);
  return known?.of === text ? { kind: "ok", value: known.outline } : outlineToml(text);
}

function allOf<T>(slices: Generator<void, T>): T {
  for (;;) {
    const slice = slices.next();
    if (slice.done === true) return slice.value;
  }
}

/** The order of rules and servers in a file means nothing, and neither does where they stand. */
function isSame(a: PolicyLayer, b: PolicyLayer): boolean {
  const others = new Map(b.rules.map((rule) => [rule.id, rule]));
  if (a.rules.length !== b.rules.length || others.size !== b.rules.length) return false;
  return a.rules.every((rule) => isSameRule(rule, others.get(rule.id))) && canonical(a) === canonical(b);
}

function isSameRule(a: Rule, b: Rule | undefined): boolean {
  if (b === undefined) return false;
  const keys = ["id", "action", "detection", "priority", "reason", "isEnabled"] as const;
  return a.condition.source === b.condition.source && keys.every((key) => a[key] === b[key]);
}

/** All but the rules. */
function canonical(layer: PolicyLayer): string {
  const servers = new Map(
    [...layer.servers].sort(byKey).map(([name, server]) => {
      return [name, { ...server, headers: new Map([...server.headers].sort(byKey)) }];
    }),
  );
  return renderLayer({ ...layer, rules: [], servers });
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
    else if (now !== rule) patchRule(patch, rule, now);
    rules.delete(rule.id);
  }
  for (const rule of rules.values()) patch.addTable(pathOf(rule), ruleFields(rule));
  patchServers(patch, before.servers, after.servers);
  return patch.result();
}

type Servers = PolicyLayer["servers"];

function patchServers(patch: TomlPatch, before: Servers, after: Servers): void {
  for (const [name, old] of before) {
    const now = after.get(name);
    if (now === undefined) patch.remove([...SERVER_TABLE, name]);
    else if (now !== old) patchServer(patch, old, now);
  }
  for (const [name, server] of after) {
    if (!before.has(name)) patch.addTable([...SERVER_TABLE, name], serverTable(server));
  }
}

/** As of a rule. A header that is no more goes; the table that held it stays. */
function patchServer(patch: TomlPatch, before: ServerDeclaration, after: ServerDeclaration): void {
  const path = [...SERVER_TABLE, after.name];
  const [old, now] = [serverFields(before), serverFields(after)];
  const usual = usualServerFields();
  for (const key of new Set([...old.own.keys(), ...now.own.keys()])) {
    const value = now.own.get(key) ?? usual.get(key);
    if (value !== undefined && old.own.get(key) !== now.own.get(key)) patch.set([...path, key], value);
  }
  for (const name of old.headers.keys()) if (!now.headers.has(name)) patch.remove([...path, "headers", name]);
  for (const [name, value] of now.headers) {
    if (old.headers.get(name) !== value) patch.set([...path, "headers", name], value);
  }
}

function byKey([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  return a < b ? -1 : 1;
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
