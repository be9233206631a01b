import { describe, expect, it } from "vitest";
import * as z from "zod";
import type { Route } from "./route.ts";
import { ROUTES } from "./route-table.ts";
import { TOOL_LIMITS } from "./tool-limits.ts";
import { TOOLS, toolOf } from "./tool-table.ts";

const VM = "vm_abcdefghijklmnop";
const tools = Object.entries(TOOLS);

describe("tool table", () => {
  it("has a tool for each route that names one, and no other", () => {
    const named = Object.entries(ROUTES as Record<string, Route>).flatMap(([name, route]) =>
      typeof route.tool === "string" ? [[route.tool, name]] : [],
    );
    expect(Object.fromEntries(tools.map(([name, tool]) => [name, tool.route]))).toEqual(
      Object.fromEntries(named),
    );
  });

  it.each(tools)("%s is called as clients allow, and says what it does", (name, tool) => {
    expect(name).toMatch(/^capsem_[a-z_]{1,57}$/);
    expect(tool.description.length).toBeGreaterThan(40);
    expect(tool.description.length).toBeLessThan(800);
    for (const [key, argument] of Object.entries(tool.input.shape)) {
      expect(key).toMatch(/^[a-z][a-z_]*$/);
      expect(z.globalRegistry.get(argument as z.ZodType)?.description, `${name} ${key}`).toBeTypeOf("string");
    }
  });

  it.each(tools)("%s has annotations that agree with its route", (_, tool) => {
    const route: Route = ROUTES[tool.route];
    expect(tool.annotations.readOnlyHint).toBe(!route.mutates);
    if (tool.annotations.readOnlyHint) {
      expect(tool.annotations.destructiveHint).toBe(false);
      expect(tool.annotations.idempotentHint).toBe(true);
    }
  });

  it.each<[string, Record<string, unknown>]>([
    ["capsem_status", {}],
    ["capsem_list", {}],
    ["capsem_stats", {}],
    ["capsem_info", { vm_id: VM }],
    ["capsem_create", { name: "dev", cpus: 2, memory: 0.75, env: { A: "1" } }],
    ["capsem_create", {}],
    ["capsem_run", { command: "true", timeout_secs: 5, cpus: 1, memory: 1, env: { A: "1" } }],
    ["capsem_exec", { vm_id: VM, command: "true", timeout_secs: 0.5 }],
    ["capsem_start", { vm_id: VM }],
    ["capsem_stop", { vm_id: VM }],
    ["capsem_delete", { vm_id: VM }],
    ["capsem_persist", { vm_id: VM, name: "dev" }],
    ["capsem_purge", { all: true }],
    ["capsem_list_files", { vm_id: VM, path: "src", depth: 3 }],
    ["capsem_read_file", { vm_id: VM, path: "a", encoding: "base64", offset: 5, max_bytes: 10 }],
    ["capsem_write_file", { vm_id: VM, path: "a", content: "aGk=", encoding: "base64" }],
    ["capsem_vm_logs", { vm_id: VM, grep: "x", tail: 3, max_bytes: 100 }],
    ["capsem_host_logs", { source: "owner", grep: "x", tail: 3, max_bytes: 100 }],
    ["capsem_panics", { since: "10m", limit: 5 }],
    ["capsem_triage", { since: "2026-01-02T03:04:05Z", limit: 5, vm_id: VM }],
    ["capsem_mcp_info", {}],
    ["capsem_mcp_servers", {}],
    ["capsem_mcp_default", {}],
    ["capsem_mcp_tools", { server_id: "local" }],
    ["capsem_mcp_refresh", { server_id: "tracker" }],
    ["capsem_mcp_call", { server_id: "tracker", tool_id: "Read it", arguments: { a: [1] }, vm_id: VM }],
    ["capsem_mcp_call", { server_id: "tracker", tool_id: "t" }],
  ])("%s with %j becomes a request that its route accepts", (name, args) => {
    const tool = toolOf(name);
    if (tool === null) throw new Error(`no tool ${name}`);
    const route: Route = ROUTES[tool.route];
    const request = tool.request(tool.input.parse(args));
    const words = Object.entries(request.query ?? {}).map(([key, value]) => [key, String(value)]);
    (route.params ?? z.strictObject({})).parse(request.params ?? {});
    (route.query ?? z.strictObject({})).parse(Object.fromEntries(words));
    if (route.request === "json") route.body?.parse(request.body);
    else if (route.request === "bytes") expect(request.body).toBeInstanceOf(Uint8Array);
    else expect(request.body).toBeUndefined();
    const asked = JSON.stringify(request);
    for (const key of Object.keys(args)) if (key === "memory") expect(asked).toContain("memory_gib");
  });

  it("asks for windows that a client which shows only text sees whole", () => {
    const ask = (name: keyof typeof TOOLS, args: Record<string, unknown>) => TOOLS[name].request(args).query;
    expect(ask("capsem_read_file", { vm_id: VM, path: "a" })).toEqual({ path: "a", length: 12_000 });
    expect(ask("capsem_vm_logs", { vm_id: VM })).toEqual({ max_bytes: 12_000 });
    expect(ask("capsem_host_logs", {})).toEqual({ max_bytes: 12_000 });
    expect((TOOL_LIMITS.windowBytes / 3) * 4).toBeLessThan(16_384 - 256);
  });

  it.each<[string, Record<string, unknown>, string]>([
    ["capsem_create", { memory: 0.3 }, "memory"],
    ["capsem_create", { name: "Dev" }, "name"],
    ["capsem_create", { network_ids: [] }, "network_ids"],
    ["capsem_create", { env: { LD_PRELOAD: "secret-value" } }, "env"],
    ["capsem_run", { command: "x".repeat(49_153) }, "command"],
    ["capsem_exec", { vm_id: "dev", command: "x" }, "vm_id"],
    ["capsem_exec", { vm_id: VM, command: "" }, "command"],
    ["capsem_exec", { vm_id: VM, command: "x", timeout_secs: 0 }, "timeout_secs"],
    ["capsem_read_file", { vm_id: VM, path: "a", max_bytes: 1_048_577 }, "max_bytes"],
    ["capsem_write_file", { vm_id: VM, path: "a", content: "secret value", encoding: "base64" }, "content"],
    ["capsem_host_logs", { source: "mcp" }, "source"],
    ["capsem_panics", { since: "yesterday" }, "since"],
    ["capsem_status", { verbose: true }, "verbose"],
    ["capsem_mcp_tools", { server_id: "a__secret" }, "server_id"],
    ["capsem_mcp_call", { server_id: "a", tool_id: "" }, "tool_id"],
    ["capsem_mcp_call", { server_id: "a", tool_id: "t", arguments: ["secret"] }, "arguments"],
  ])("%s refuses %j and names the argument", (name, args, argument) => {
    const parsed = toolOf(name)?.input.safeParse(args);
    expect(parsed?.success).toBe(false);
    const text = JSON.stringify(parsed?.error?.issues);
    expect(text).toContain(argument);
    expect(text).not.toContain("secret");
  });

  it("knows no tool by an inherited or retired name", () => {
    for (const name of [
      "constructor",
      "__proto__",
      "capsem_suspend",
      "capsem_version",
      "capsem_service_logs",
    ])
      expect(toolOf(name)).toBeNull();
  });
});
