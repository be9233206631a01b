import { expect, test } from "vitest";
import { decide } from "./decide.ts";
import { applyEdits, type PolicyEdit } from "./edit.ts";
import { type EventFields, securityEvent } from "./event/event.ts";
import { label, labelFields } from "./label.ts";
import { emptyLayer } from "./layer.ts";
import { lintRules } from "./lint.ts";
import {
  MCP_DEFAULT_RULE,
  mcpDefaultIn,
  mcpDefaultRule,
  mcpToolIn,
  mcpToolRule,
  mcpToolRuleId,
  mcpToolRulesOf,
} from "./mcp-rules.ts";
import type { DecisionAction } from "./rule.ts";
import { compileSnapshot } from "./snapshot.ts";
import { layerOf, sha256 } from "./testing/policies.ts";

const corp = emptyLayer("corp");

function layerWith(text: string, ...edits: (PolicyEdit | undefined)[]) {
  const made = applyEdits(
    { user: layerOf("user", text), corp },
    edits.filter((edit) => edit !== undefined),
  );
  if (made.kind === "refused") throw new Error(JSON.stringify(made.faults));
  return made.value;
}

const clean = labelFields(label("public", "trusted"));
const secret = labelFields(label("secret", "user"));

function call(layer: ReturnType<typeof layerWith>, tool: string, more: EventFields = clean): string {
  const event = securityEvent(
    "mcp.tool_call",
    { event_id: "0123456789ab" },
    {
      "mcp.server.name": "tracker",
      "mcp.server.external": true,
      "mcp.server.pinned": true,
      "mcp.tool_call.name": tool,
      ...more,
    },
  );
  const { action, rule_id } = decide(compileSnapshot({ user: layer }, sha256), event);
  return `${action} ${rule_id}`;
}

const open = '[profiles]\npreset = "open"\n';
const tool = (name: string, permission: DecisionAction) => mcpToolRule("tracker", name, permission, sha256);

test("a default holds where no rule speaks, and a tool's own permission before it", () => {
  const id = mcpToolRuleId("tracker", "delete", sha256);
  for (const usual of ["allow", "ask", "block"] as const) {
    const layer = layerWith(open, mcpDefaultRule(usual), tool("delete", "block"), tool("read", "allow"));
    expect(call(layer, "list")).toBe(`${usual} ${MCP_DEFAULT_RULE}`);
    expect(call(layer, "delete")).toBe(`block ${id}`);
    expect(call(layer, "read")).toBe(`allow ${mcpToolRuleId("tracker", "read", sha256)}`);
    expect(call(layer, "read", { ...clean, "mcp.server.name": "other" })).toBe(
      `${usual} ${MCP_DEFAULT_RULE}`,
    );
    expect(mcpDefaultIn(layer.rules)).toBe(usual);
    expect(mcpToolIn(layer.rules, "tracker", "delete", sha256)).toBe("block");
    expect(mcpToolIn(layer.rules, "tracker", "list", sha256)).toBe("default");
    expect(lintRules(layer.rules)).toEqual([]);
  }
  expect(mcpDefaultIn(layerWith(open).rules)).toBe("default");
});

test("what a person wrote comes first", () => {
  const text = `[profiles.rules.mine]\naction = "ask"\nmatch = 'mcp.tool_call.name == "read"'\npriority = 899\n`;
  expect(call(layerWith(text, mcpDefaultRule("allow"), tool("read", "block")), "read")).toBe(
    "ask profiles.rules.mine",
  );
});

test("allowing does not let past a definition that nobody approved, nor asking a secret", () => {
  const changed = { ...clean, "mcp.server.pinned": false };
  // The attack succeeds where the rule says nothing of it.
  const naive = {
    ...mcpDefaultRule("allow"),
    fields: { ...mcpDefaultRule("allow").fields, match: 'event.type == "mcp.tool_call"' },
  };
  expect(call(layerWith("", naive), "read", changed)).toMatch(/^allow /);
  expect(call(layerWith("", naive), "read", secret)).toMatch(/^allow /);
  for (const layer of [layerWith("", mcpDefaultRule("allow")), layerWith("", tool("read", "allow"))]) {
    expect(call(layer, "read")).toMatch(/^allow profiles/);
    expect(call(layer, "read", changed)).toBe("ask default.changed_tool");
    expect(call(layer, "read", secret)).toBe("block default.secret_to_external_server");
    // One that nobody labelled is no secret.
    expect(call(layer, "read", {})).toMatch(/^allow profiles/);
  }
  for (const layer of [layerWith("", mcpDefaultRule("ask")), layerWith("", tool("read", "ask"))]) {
    expect(call(layer, "read", changed)).toMatch(/^ask profiles/);
    expect(call(layer, "read", secret)).toBe("block default.secret_to_external_server");
  }
  const blocked = layerWith("", tool("read", "block"));
  for (const more of [clean, changed, secret]) expect(call(blocked, "read", more)).toMatch(/^block /);
});

test("a rule of that name that was changed by hand is no permission", () => {
  const edit = mcpDefaultRule("allow");
  const with_ = (fields: object) => layerWith("", { ...edit, fields: { ...edit.fields, ...fields } }).rules;
  expect(mcpDefaultIn(with_({}))).toBe("allow");
  expect(mcpDefaultIn(with_({ match: "true" }))).toBe("default");
  expect(mcpDefaultIn(with_({ priority: 20 }))).toBe("default");
  expect(mcpDefaultIn(with_({ enabled: false }))).toBe("default");
  expect(mcpDefaultIn(with_({ action: "rewrite" }))).toBe("default");
});

test("any name of a tool means itself alone", () => {
  for (const name of ["a", 'a" || true || "', "a\\", "naïve 💥", "\u202e", "a\nb"]) {
    const layer = layerWith("", tool(name, "block"));
    expect(call(layer, name)).toMatch(/^block /);
    expect(call(layer, "other")).not.toMatch(/^block /);
    expect(mcpToolIn(layer.rules, "tracker", name, sha256)).toBe("block");
  }
  expect(tool("\ud800", "block")).toBeUndefined();
});

test("permissions of a server's tools are found, and those of another with a longer name are not", () => {
  const layer = layerWith(
    "",
    tool("a", "allow"),
    tool("b", "block"),
    mcpToolRule("tracker2", "a", "block", sha256),
    mcpDefaultRule("ask"),
  );
  const ids = ["a", "b"].map((name) => mcpToolRuleId("tracker", name, sha256));
  expect(mcpToolRulesOf(layer.rules, "tracker")).toEqual(ids);
});
