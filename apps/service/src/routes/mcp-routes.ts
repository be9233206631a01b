import { apiFailure, type McpInfo, type McpServerFields, RESERVED_MCP_SERVERS } from "@capsem/api";
import { REVISIONS } from "@capsem/mcp-protocol";
import { judgeUrl } from "@capsem/net";
import {
  MCP_DEFAULT_RULE,
  mcpDefaultIn,
  mcpDefaultRule,
  mcpToolRule,
  mcpToolRuleId,
  mcpToolRulesOf,
  type PolicyEdit,
  serverKey,
} from "@capsem/policy";
import { type Handlers, json } from "../http/handler.ts";
import type { Cells } from "../mcp/cells.ts";
import { callTool, lookAt } from "../mcp/host-calls.ts";
import type { PinBook } from "../mcp/pin-book.ts";
import type { ToolServers } from "../mcp/tool-servers.ts";
import { findingInfos } from "../policy/infos.ts";
import type { PolicyChanges } from "../policy/policy-changes.ts";
import { sha256 } from "../policy/policy-state.ts";
import type { PolicyStore } from "../policy/policy-store.ts";
import type { Registry } from "../vm/registry.ts";

export interface McpRouteParts {
  readonly policy: PolicyStore;
  readonly policyEdit: PolicyChanges["edit"];
  readonly servers: ToolServers;
  readonly pins: PinBook;
  readonly cells: Cells;
  readonly registry: Pick<Registry, "get">;
  readonly monotonicMs: () => number;
}

/** Where programs in a VM find their tools. */
const GUEST_WAYS = { stdio: "/run/capsem-mcp-server", http: "http://mcp.capsem.internal/mcp" } as const;

export function mcpRoutes(parts: McpRouteParts) {
  return { ...serverRoutes(parts), ...permissionRoutes(parts), ...pinRoutes(parts), ...callRoutes(parts) };
}

function serverRoutes(parts: McpRouteParts) {
  const { policy, policyEdit, servers, pins } = parts;
  return {
    mcpInfo: async () => json(infoOf(parts)),
    mcpServers: async () => json({ servers: servers.names.map((name) => servers.info(name)) }),
    mcpServerPut: async ({ params, body, context }) => {
      checkDeclaration(params.id, body);
      await policyEdit(context, [{ kind: "put_server", id: serverKey(params.id), fields: body }]);
      return json(servers.info(params.id));
    },
    mcpServerDelete: async ({ params, context }) => {
      const { id } = params;
      servers.check(id);
      const rules = mcpToolRulesOf(policy.state.user.main.rules, id);
      await policyEdit(context, [
        { kind: "delete_server", id: serverKey(id) },
        ...rules.map((rule): PolicyEdit => ({ kind: "delete_rule", id: rule })),
      ]);
      // Another declaration of that name may hold now, and it is not the one whose tools were approved.
      await pins.forget(id);
      servers.forget(id);
      const { snapshot, findings } = policy.state;
      return json({ digest: snapshot.digest, findings: findingInfos(await findings()) });
    },
  } satisfies Partial<Handlers>;
}

function permissionRoutes({ policy, policyEdit, servers, pins }: McpRouteParts) {
  const defaultNow = () => {
    const permission = mcpDefaultIn(policy.snapshot().rules);
    return json({ permission, rule_id: permission === "default" ? null : MCP_DEFAULT_RULE });
  };
  const has = (id: string) => policy.state.user.whole.rules.some((rule) => rule.id === id);
  const toolOf = (server: string, name: string) => {
    servers.check(server);
    const found = pins.of(server)?.tools.find((tool) => tool.name === name);
    if (found !== undefined) return found;
    throw apiFailure(
      "mcp_tool_not_found",
      `Cannot find tool "${name}": server "${server}" has not listed it`,
    );
  };
  return {
    mcpDefault: async () => defaultNow(),
    mcpDefaultSet: async ({ body, context }) => {
      const { permission } = body;
      if (permission !== "default") await policyEdit(context, [mcpDefaultRule(permission)]);
      else if (has(MCP_DEFAULT_RULE))
        await policyEdit(context, [{ kind: "delete_rule", id: MCP_DEFAULT_RULE }]);
      return defaultNow();
    },
    mcpTools: async ({ params }) => json({ server_id: params.id, tools: servers.tools(params.id) }),
    mcpToolSet: async ({ params, body, context }) => {
      const { id: server, tool: name } = params;
      const tool = toolOf(server, name);
      if (body.permission !== "default") {
        const edit = mcpToolRule(server, name, body.permission, sha256);
        if (edit === undefined) {
          throw apiFailure(
            "invalid_input",
            `Cannot permit "${name}": no rule can name it, it holds half a character`,
          );
        }
        await policyEdit(context, [edit]);
      } else {
        const id = mcpToolRuleId(server, name, sha256);
        if (has(id)) await policyEdit(context, [{ kind: "delete_rule", id }]);
      }
      return json(servers.tool(server, tool));
    },
  } satisfies Partial<Handlers>;
}

function pinRoutes({ servers, pins }: McpRouteParts) {
  const shown = (id: string) => json({ server_id: id, pins: pins.info(id) });
  return {
    mcpPins: async ({ params }) => {
      servers.check(params.id);
      return shown(params.id);
    },
    mcpPinsApprove: async ({ params, body, context }) => {
      servers.check(params.id);
      await pins.approve(params.id, body, context);
      return shown(params.id);
    },
  } satisfies Partial<Handlers>;
}

function callRoutes(parts: McpRouteParts) {
  const { servers, cells } = parts;
  return {
    mcpRefresh: async ({ params, context }) => {
      const { id } = params;
      servers.check(id);
      if (!servers.isServed(id)) {
        throw apiFailure("mcp_server_disabled", `Cannot look at tool server "${id}": it is switched off`);
      }
      await lookAt(cells.host, id, context);
      return json({ server_id: id, tools: servers.tools(id) });
    },
    mcpCall: async ({ body, context }) => {
      servers.check(body.server_id);
      return json(await callTool(parts, body, context));
    },
  } satisfies Partial<Handlers>;
}

/** Throws Failure "invalid_input": what is declared can be reached, as far as its URL says. */
function checkDeclaration(id: string, { url, grants }: McpServerFields): void {
  if ((RESERVED_MCP_SERVERS as readonly string[]).includes(id)) {
    throw apiFailure("invalid_input", `Cannot declare tool server "${id}": the name is ours`);
  }
  const judged = judgeUrl(url, grants ?? []);
  if (judged.kind === "ok") return;
  const grant = judged.grant === null ? "" : `; grants = ["${judged.grant}"] allows it`;
  const facts = judged.grant === null ? {} : { facts: { grant: judged.grant } };
  throw apiFailure("invalid_input", `Cannot declare tool server "${id}": ${judged.reason}${grant}`, facts);
}

function infoOf({ policy, servers, cells }: McpRouteParts): McpInfo {
  const all = servers.names.map((name) => servers.info(name));
  const sum = (of: (server: (typeof all)[number]) => number) =>
    all.reduce((total, each) => total + of(each), 0);
  return {
    servers: all.length,
    enabled: all.filter(({ enabled }) => enabled).length,
    failed: all.filter(({ state }) => state === "failed").length,
    tools: sum(({ tools }) => tools),
    quarantined: sum(({ quarantined }) => quarantined),
    default_permission: mcpDefaultIn(policy.snapshot().rules),
    guest: { ...GUEST_WAYS },
    protocols: [...REVISIONS],
    proxies: cells.list().flatMap((cell) => (cell.isRunning ? [cell.info] : [])),
  };
}
