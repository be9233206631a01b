import { celText } from "./cel/literal.ts";
import type { PolicyEdit } from "./edit.ts";
import { type DecisionAction, type Rule, ruleId } from "./rule.ts";
import type { Digest } from "./snapshot.ts";

/** What a person says of tools without writing a rule; `default` is that nothing is said. */
export type McpPermission = DecisionAction | "default";

export interface McpRuleEdit extends Extract<PolicyEdit, { kind: "put_rule" }> {
  readonly fields: {
    readonly action: DecisionAction;
    readonly match: string;
    readonly priority: number;
    readonly reason: string;
  };
}

/** The rule that `mcp default` writes. It comes after every other rule of the user's. */
export const MCP_DEFAULT_RULE = ruleId("user", "mcp-default");
const DEFAULT_PRIORITY = 1_000;
/** Before the default, and after what a person wrote by hand. */
const TOOL_PRIORITY = 900;
const TOOL_RULE_PREFIX = ruleId("user", "mcp-tool-");
const HASH_CHARS = 12;

const CALL = 'event.type == "mcp.tool_call"';
/** A definition that nobody approved is not what was allowed. */
const PINNED = "mcp.server.pinned";
/** Built-in rules block secrets to servers, and they come later: whoever wants to overrule them writes a rule. */
const NO_SECRET = '!(has(label.confidentiality) && tainted(label, "secret"))';
const ONLY: Readonly<Record<DecisionAction, readonly string[]>> = {
  allow: [PINNED, NO_SECRET],
  ask: [NO_SECRET],
  block: [],
};

/** The edit for what a tool meets of which no other rule speaks. */
export function mcpDefaultRule(permission: DecisionAction): McpRuleEdit {
  const match = [CALL, ...ONLY[permission]].join(" && ");
  const reason = `the default for tools is ${permission}`;
  const fields = { action: permission, match, priority: DEFAULT_PRIORITY, reason };
  return { kind: "put_rule", id: MCP_DEFAULT_RULE, fields };
}

/** The edit for one tool of a server; undefined where no rule can name it: half a character is in its name. */
export function mcpToolRule(
  server: string,
  tool: string,
  permission: DecisionAction,
  digest: Digest,
): McpRuleEdit | undefined {
  const name = celText(tool);
  if (name === undefined) return undefined;
  const match = [`${ofServer(server)} && mcp.tool_call.name == ${name}`, ...ONLY[permission]].join(" && ");
  const reason = `${permission} is set for this tool`;
  const fields = { action: permission, match, priority: TOOL_PRIORITY, reason };
  return { kind: "put_rule", id: mcpToolRuleId(server, tool, digest), fields };
}

/** `digest` gives lower-case hex digits. */
export function mcpToolRuleId(server: string, tool: string, digest: Digest): string {
  return `${TOOL_RULE_PREFIX}${digest(JSON.stringify([server, tool])).slice(0, HASH_CHARS)}`;
}

/** What `mcpDefaultRule` wrote into these rules. One that was changed by hand is a rule like any other. */
export function mcpDefaultIn(rules: readonly Rule[]): McpPermission {
  return permissionOf(rules, MCP_DEFAULT_RULE, mcpDefaultRule);
}

/** What `mcpToolRule` wrote into these rules. */
export function mcpToolIn(
  rules: readonly Rule[],
  server: string,
  tool: string,
  digest: Digest,
): McpPermission {
  return permissionOf(rules, mcpToolRuleId(server, tool, digest), (permission) =>
    mcpToolRule(server, tool, permission, digest),
  );
}

/** Ids of the rules that `mcpToolRule` wrote of tools of a server. */
export function mcpToolRulesOf(rules: readonly Rule[], server: string): readonly string[] {
  const isOfServer = ({ id, condition }: Rule) =>
    id.startsWith(TOOL_RULE_PREFIX) && condition.source.startsWith(`${ofServer(server)} && `);
  return rules.filter(isOfServer).map(({ id }) => id);
}

function permissionOf(
  rules: readonly Rule[],
  id: string,
  written: (permission: DecisionAction) => McpRuleEdit | undefined,
): McpPermission {
  const rule = rules.find((each) => each.id === id);
  if (rule === undefined || !rule.isEnabled) return "default";
  const { action, condition, priority } = rule;
  if (action !== "allow" && action !== "ask" && action !== "block") return "default";
  const fields = written(action)?.fields;
  const isWritten = fields?.match === condition.source && fields.priority === priority;
  return isWritten ? action : "default";
}

/** A server's name is of letters that need no quoting. */
function ofServer(server: string): string {
  return `${CALL} && mcp.server.name == "${server}"`;
}
