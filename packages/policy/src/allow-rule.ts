import { celText } from "./cel/literal.ts";
import { Inexpressible, sameMap } from "./cel/same-json.ts";
import type { Decision } from "./decide.ts";
import type { PolicyEdit } from "./edit.ts";
import type { SecurityEvent } from "./event/event.ts";
import { canBeCut, fieldRow } from "./event/field-table.ts";
import { isMap } from "./event/value.ts";
import { isRedacted } from "./redaction.ts";
import { RULE_SOURCES, ruleId } from "./rule.ts";
import { checkRule, type GivenField } from "./rule-fields.ts";
import type { Digest } from "./snapshot.ts";

export type AllowRule =
  | { readonly kind: "edit"; readonly edit: Extract<PolicyEdit, { kind: "put_rule" }> }
  /** `reason` says why there is no such rule, and what to do instead. */
  | { readonly kind: "none"; readonly reason: string };

/**
 * The edit that allows exactly this act from now on: what an approval for "always" writes. It goes just before the
 * rule that asked, so it overrules nothing else than it must. `event` is the act as it is stored: a secret that is
 * still in it would end up in a settings file. `digest` gives lower-case hex digits.
 */
export function allowRuleFor(event: SecurityEvent, decision: Decision, digest: Digest): AllowRule {
  const priority = priorityBefore(decision);
  if (typeof priority === "string") return { kind: "none", reason: priority };
  const match = matchOf(event);
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
    `give it priority = ${least + 1} or more, or change its match`
  );
}

/** Fields that make an act the one it is. `needed` must be there; the others count where they are. */
interface ActRow {
  readonly needed: readonly string[];
  readonly also: readonly string[];
}

const FILE_ACTS = ["read", "create", "write", "delete"].map((act) => `file.${act}.path`);

/** The types whose acts can be named exactly. */
const ACTS: ReadonlyMap<string, ActRow> = new Map<string, ActRow>([
  [
    "process.exec",
    {
      needed: ["process.command"],
      // The same words are another act for another user, in another folder, or of another program.
      also: ["process.exec.path", "process.exec.user", "process.exec.cwd"],
    },
  ],
  ["file.import", { needed: ["file.import.path"], also: [] }],
  ["file.export", { needed: ["file.export.path"], also: [] }],
  ["file.event", { needed: [], also: FILE_ACTS }],
  ["vm.lifecycle", { needed: ["vm.lifecycle.action"], also: [] }],
  ["settings.change", { needed: ["settings.key", "settings.source"], also: [] }],
  [
    "mcp.tool_call",
    {
      needed: ["mcp.server.name", "mcp.tool_call.name"],
      also: ["mcp.server.external", "mcp.server.pinned"],
    },
  ],
]);

function matchOf(event: SecurityEvent): string | Inexpressible {
  const row = ACTS.get(event.type);
  if (row === undefined) {
    return new Inexpressible(`no rule can name exactly one ${event.type}; write one that says what is meant`);
  }
  if (isChangedTool(event)) {
    return new Inexpressible("this tool is not the one that was approved; approve its definition instead");
  }
  const conditions = [`event.type == "${event.type}"`];
  const paths = [...row.needed, ...row.also.filter((path) => event.facts.has(path))];
  if (paths.length === 0) return new Inexpressible("the event does not say which file it is about");
  for (const path of paths) {
    const condition = sameField(event, path);
    if (condition instanceof Inexpressible) return condition;
    conditions.push(condition);
  }
  if (event.type === "mcp.tool_call") {
    const same = sameArguments(event);
    if (same instanceof Inexpressible) return same;
    conditions.push(...same);
  }
  return [...conditions, ...sameLabel(event)].join(" && ");
}

/** A rule for it would also let in whatever the tool becomes next. */
function isChangedTool({ facts }: SecurityEvent): boolean {
  return facts.get("mcp.server.external") === true && facts.get("mcp.server.pinned") !== true;
}

function sameField({ facts }: SecurityEvent, path: string): string | Inexpressible {
  const value = facts.get(path);
  if (typeof value === "boolean") return value ? path : `!${path}`;
  if (typeof value !== "string") return new Inexpressible(`the event does not say its ${path}`);
  const row = fieldRow(path);
  const isCut = facts.get(`${path.slice(0, path.indexOf("."))}.truncated`) === true;
  if (isCut && row !== undefined && canBeCut(row)) {
    return new Inexpressible(`${path} may have been cut; others that begin alike would be allowed too`);
  }
  if (isRedacted(value)) return new Inexpressible(`${path} held a secret, which no file of rules may hold`);
  const text = celText(value);
  return text === undefined ? new Inexpressible(`${path} holds half a character`) : `${path} == ${text}`;
}

const ARGUMENTS = "mcp.request.arguments";

function sameArguments({ facts }: SecurityEvent): string[] | Inexpressible {
  const given = facts.get(ARGUMENTS);
  if (given === undefined) return [`!has(${ARGUMENTS})`];
  if (facts.get("mcp.truncated") === true) return new Inexpressible("the arguments were cut");
  if (isRedacted(given))
    return new Inexpressible("the arguments held a secret, which no file of rules may hold");
  const same = isMap(given) ? sameMap(ARGUMENTS, given) : new Inexpressible("no map");
  if (!(same instanceof Inexpressible)) return same;
  return new Inexpressible(`no rule can name exactly these arguments: they hold ${same.what}`);
}

/**
 * An approval of what flowed then is none of what is more tainted. Built-in rules about labels come after every rule
 * of the user, so a call without a label stays one without.
 */
function sameLabel({ type, facts }: SecurityEvent): string[] {
  const levels = ["label.confidentiality", "label.integrity"];
  const given = levels.filter((path) => facts.has(path)).map((path) => `${path} == "${facts.get(path)}"`);
  if (given.length > 0 || type !== "mcp.tool_call") return given;
  return levels.map((path) => `!has(${path})`);
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
