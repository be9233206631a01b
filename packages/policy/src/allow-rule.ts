import { isLabelPath, LABEL_PATHS, type LabelPath } from "./bound-labels.ts";
import { celLiteral, celText } from "./cel/literal.ts";
import { Inexpressible, sameMap } from "./cel/same-json.ts";
import type { Decision } from "./decide.ts";
import type { PolicyEdit } from "./edit.ts";
import type { SecurityEvent } from "./event/event.ts";
import { CARRIED, type EventType } from "./event/event-table.ts";
import { FIELD_STRUCTS } from "./event/field-table.ts";
import { isMap } from "./event/value.ts";
import { ANY_SOURCE, CONFIDENTIALITY, INTEGRITY } from "./label.ts";
import { isRedacted } from "./redaction.ts";
import { ASK_PRIORITY, RULE_SOURCES, ruleId } from "./rule.ts";
import { checkRule, type GivenField } from "./rule-fields.ts";
import type { Digest } from "./snapshot.ts";

export type AllowRule =
  | { readonly kind: "edit"; readonly edit: Extract<PolicyEdit, { kind: "put_rule" }> }
  /** `reason` says why there is no such rule, and what to do instead. */
  | { readonly kind: "none"; readonly reason: string };

/**
 * The edit that allows exactly this act from now on: what an approval for "always" writes. It goes just before the
 * rule that asked, so it overrules nothing else than it must. `event` is the act as it is stored: a secret that is
 * still in it would end up in a settings file. `digest` gives lower-case hex digits. `labels` are the parts of the label
 * that it depends on: `boundLabels` of the decision.
 */
export function allowRuleFor(
  event: SecurityEvent,
  decision: Decision,
  digest: Digest,
  labels: readonly LabelPath[] = LABEL_PATHS,
): AllowRule {
  const priority = priorityBefore(decision);
  if (typeof priority === "string") return { kind: "none", reason: priority };
  const match = matchOf(event, labels);
  if (match instanceof Inexpressible) return { kind: "none", reason: match.what };
  const name = `allow-${digest(match).slice(0, 12)}`;
  const reason = `approved for always; ${decision.rule_id} asked`;
  const fields = { action: "allow", match, priority, reason };
  const fault = faultOf(name, fields);
  if (fault !== undefined) return { kind: "none", reason: `no rule can name this act: ${fault}` };
  return { kind: "edit", edit: { kind: "put_rule", id: ruleId("user", name), fields } };
}

/** The last priority that comes before the rule that asked, or why there is none. */
function priorityBefore({ action, rule_id, explanation }: Decision): number | string {
  const { least, most } = RULE_SOURCES.user;
  if (action !== "ask") return `"${rule_id}" did not ask: its decision is ${action}`;
  if (rule_id.startsWith(ruleId("corp", ""))) {
    return `"${rule_id}" is a rule of the corporation, which no rule of the user can precede; approve each act`;
  }
  if (!rule_id.startsWith(ruleId("user", ""))) return most;
  const asked = explanation.matched.find((rule) => rule.rule_id === rule_id);
  if (asked === undefined) return `the decision does not say at which priority "${rule_id}" asked`;
  if (asked.priority > least) return asked.priority - 1;
  return (
    `"${rule_id}" asks at priority ${least}, which no rule of the user can precede; ` +
    `give it priority = ${ASK_PRIORITY}, or change its match`
  );
}

/** Fields without which an act has no name, by the types of which a rule can name one exactly. */
const ACTS: ReadonlyMap<string, readonly string[]> = new Map<string, readonly string[]>([
  ["process.exec", ["process.command"]],
  ["file.export", ["file.export.path"]],
  ["file.event", []],
  ["vm.lifecycle", ["vm.lifecycle.action"]],
  ["mcp.tool_call", ["mcp.server.name", "mcp.tool_call.name"]],
]);

/** What is asked for is not in any field: a rule would allow everything that is called the same. */
const UNNAMED: ReadonlyMap<string, string> = new Map([
  ["file.import", "no field of it has all the bytes; write a rule that says which files may come in"],
  ["settings.change", "no field of it has the new value; approve each change"],
]);

/** A rule for one of them would never match again. */
const ONCE_AT_MOST: ReadonlyMap<string, string> = new Map([
  ["create", "the next one is another VM"],
  ["delete", "afterwards there is no such VM"],
  ["purge", "afterwards there is no such VM"],
]);

/** Whether a rule can allow exactly one act of this type. */
export function canBeAllowed(type: EventType): boolean {
  return ACTS.has(type);
}

/** Each try has another one. */
const OF_ONE_TRY: ReadonlySet<string> = new Set(["process.exec.id", "mcp.tool_call.id", "mcp.request.id"]);
/** The VM's id says all of these, and outlives a new name. */
const OF_THE_VM = /^vm\.(?:id|name|image|labels)$/;
/** Made of other fields, which are compared. */
const MADE = /^(?:event\.type|file\.content|file\.[a-z]+\.(?:name|ext)|[a-z]+\.(?:valid|truncated))$/;
/** There when some rule reads it, whichever act it is. */
const LOOKED_AT = /^file\.[a-z]+\.(?:content|size|mime_type)$/;

/**
 * The condition that holds of exactly this act: the same in every field that it has, and without every field that it
 * could have and has not, so that what was not shown is not allowed either. Of the label it says how far it may go.
 */
function matchOf(event: SecurityEvent, labels: readonly LabelPath[]): string | Inexpressible {
  const why = unnamed(event);
  if (why !== undefined) return new Inexpressible(why);
  const vm = sameVm(event);
  if (vm instanceof Inexpressible) return vm;
  const conditions = [`event.type == "${event.type}"`];
  const absent: string[] = [];
  for (const path of CARRIED.get(event.type) ?? []) {
    if (OF_ONE_TRY.has(path) || OF_THE_VM.test(path) || MADE.test(path)) continue;
    if (event.facts.has(path)) {
      const same = isLabelPath(path) ? labelAtMost(event, path, labels) : sameField(event, path);
      if (same instanceof Inexpressible) return same;
      conditions.push(...same);
    } else if (!LOOKED_AT.test(path)) absent.push(path);
  }
  // After what tells acts apart best: rules are looked up by what comes first. Not of names above fields is asked
  // whether they are there: whoever asks that makes the service look into files.
  return [...conditions, vm, ...absent.map((path) => `!has(${path})`)].join(" && ");
}

/** Why no rule can name this act. */
function unnamed(event: SecurityEvent): string | undefined {
  const { type, facts } = event;
  const needed = ACTS.get(type);
  if (needed === undefined) {
    const why = UNNAMED.get(type) ?? "write one that says what is meant";
    return `no rule can name exactly one ${type}: ${why}`;
  }
  if (isChangedTool(event))
    return "this tool is not the one that was approved; approve its definition instead";
  const missing = needed.find((path) => !facts.has(path));
  if (missing !== undefined) return `the event does not say its ${missing}`;
  if (type === "file.event" && !FILE_ACTS.some((act) => facts.has(act))) {
    return "the event does not say which file it is about";
  }
  for (const root of ROOTS) {
    if (facts.get(`${root}.valid`) === false) return `"${root}" was not understood whole`;
    if (facts.get(`${root}.truncated`) === true) {
      return `a field of "${root}" was cut; others that begin alike would be allowed too`;
    }
  }
  return ONCE_AT_MOST.get(String(facts.get("vm.lifecycle.action")));
}

const ROOTS = [...FIELD_STRUCTS].filter((name) => !name.includes("."));
const FILE_ACTS = ["file.read", "file.create", "file.write", "file.delete"];

/** This VM alone, by the id that no other one ever has. */
function sameVm({ facts }: SecurityEvent): string | Inexpressible {
  const id = facts.get("vm.id");
  if (id === undefined) return "!has(vm.id)";
  if (!facts.has("vm.name")) {
    return new Inexpressible("its VM has no name, so it is gone when it stops; approve it for the VM");
  }
  const text = celText(String(id));
  return text === undefined ? new Inexpressible("vm.id holds half a character") : `vm.id == ${text}`;
}

/** Nothing that is more secret than what was shown, whatever asked: the rule goes before those that keep secrets in. */
const ALWAYS_BOUND: LabelPath = "label.confidentiality";

/** No more tainted than what was shown; less is no worse. */
function labelAtMost(
  { facts }: SecurityEvent,
  path: LabelPath,
  labels: readonly LabelPath[],
): readonly string[] | Inexpressible {
  if (path !== ALWAYS_BOUND && !labels.includes(path)) return [];
  const value = facts.get(path);
  if (path === "label.sources") {
    const sources = Array.isArray(value) ? value : [];
    if (sources.includes(ANY_SOURCE)) return [];
    const listed = celLiteral(sources);
    if (isRedacted(sources))
      return new Inexpressible(`${path} held a secret, which no file of rules may hold`);
    if (typeof listed !== "string") return new Inexpressible(`${path} holds half a character`);
    return [sources.length === 0 ? `${path} == []` : `${path}.all(source, source in ${listed})`];
  }
  const order: readonly string[] = path === "label.confidentiality" ? CONFIDENTIALITY : INTEGRITY;
  const names = order.slice(0, order.indexOf(String(value)) + 1).map((name) => `"${name}"`);
  return [names.length === 1 ? `${path} == ${names[0]}` : `${path} in [${names.join(", ")}]`];
}

/** A rule for it would also let in whatever the tool becomes next. */
function isChangedTool({ facts }: SecurityEvent): boolean {
  return facts.get("mcp.server.external") === true && facts.get("mcp.server.pinned") !== true;
}

function sameField({ facts }: SecurityEvent, path: string): readonly string[] | Inexpressible {
  const value = facts.get(path);
  if (value === undefined) return new Inexpressible(`the event does not say its ${path}`);
  if (path.endsWith(".content")) {
    return new Inexpressible(`a rule would have to hold its ${path}; approve it for the VM`);
  }
  if (isRedacted(value)) return new Inexpressible(`${path} held a secret, which no file of rules may hold`);
  if (typeof value === "boolean") return [value ? path : `!${path}`];
  const same = isMap(value) ? sameMap(path, value) : celLiteral(value);
  if (same instanceof Inexpressible) {
    return new Inexpressible(`no rule can name exactly this ${path}: it holds ${same.what}`);
  }
  if (same === undefined) {
    const what = typeof value === "string" ? "half a character" : "what no rule can write";
    return new Inexpressible(`${path} holds ${what}`);
  }
  return typeof same === "string" ? [`${path} == ${same}`] : same;
}

/** What would keep the rule out of a file, such as its length. */
function faultOf(name: string, fields: Readonly<Record<string, string | number>>): string | undefined {
  const given = Object.entries(fields).map(([key, value]): [string, GivenField] => [
    key,
    {
      value: typeof value === "number" ? BigInt(value) : value,
      keyAt: undefined,
      valueAt: undefined,
      placeOf: () => undefined,
    },
  ]);
  const checked = checkRule("user", name, new Map(given), undefined);
  return "id" in checked ? undefined : checked.map(({ message }) => message).join("; ");
}
