import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TOOLS, type ToolName } from "@capsem/api";
import { createNodeClient } from "@capsem/sdk/node";
import { afterAll, beforeAll, expect, it } from "vitest";
import {
  type FixtureService,
  startFixtureService,
} from "../../../packages/sdk/src/testing/fixture-service.ts";
import type { Calls } from "./attempt.ts";
import { TEXT_MIRROR_BYTES_MAX } from "./limits.ts";
import { type Connected, connect } from "./testing/connected.ts";
import { type FixtureGateway, startFixtureGateway } from "./testing/fixture-gateway.ts";

let home: string;
let service: FixtureService;
let gateway: FixtureGateway;
let mcp: Connected;

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), "mcp-servers-"));
  service = await startFixtureService({ home });
  gateway = await startFixtureGateway(service.socketPath);
  mcp = await connect(createNodeClient({ url: gateway.url, token: gateway.token }) as Calls);
  service.state.mcp.put("tracker", { url: "https://tracker.test/mcp" });
  service.state.mcp.put("away", { url: "https://away.test/mcp" });
});
afterAll(async () => {
  await mcp?.close();
  await gateway?.close();
  await service?.close();
  rmSync(home, { recursive: true, force: true });
});

it("tool servers are seen, looked at and called, each result as its schema says", async () => {
  const used = new Set<string>();
  const use = async (name: ToolName, args: Record<string, unknown> = {}) => {
    used.add(name);
    const value = await mcp.value<Record<string, unknown>>(name, args);
    TOOLS[name].output.parse(value);
    return value;
  };
  expect(await use("capsem_mcp_info")).toMatchObject({ guest: { stdio: "/run/capsem-mcp-server" } });
  expect(await use("capsem_mcp_default")).toEqual({ permission: "default", rule_id: null });
  expect(JSON.stringify(await use("capsem_mcp_servers"))).toContain('"name":"tracker"');
  expect(await use("capsem_mcp_tools", { server_id: "tracker" })).toEqual({
    server_id: "tracker",
    tools: [],
  });
  expect(await use("capsem_mcp_refresh", { server_id: "tracker" })).toMatchObject({
    tools: [{ name: "search" }, { name: "create" }, { name: "fail" }],
  });
  const { id: vm_id } = await mcp.value<{ id: string }>("capsem_create");
  const args = { text: "hi", deep: [{ a: null }] };
  const call = { server_id: "tracker", tool_id: "search", arguments: args, vm_id };
  expect(await use("capsem_mcp_call", call)).toMatchObject({
    is_error: false,
    result: { structuredContent: args },
  });
  expect(service.state.mcp.calls.at(-1)).toEqual({ server: "tracker", tool: "search", vmId: vm_id });
  const failed = await use("capsem_mcp_call", { server_id: "tracker", tool_id: "fail" });
  expect(failed).toMatchObject({ is_error: true, result: { content: [{ text: "it did not work" }] } });
  const names = Object.keys(TOOLS).filter((name) => name.startsWith("capsem_mcp_"));
  expect([...used].sort()).toEqual(names.sort());
});

it("what is not there or away is said with what to do, and a call is sent once", async () => {
  expect(await mcp.failure("capsem_mcp_tools", { server_id: "nothing" })).toMatchObject({
    ...{ kind: "http", status: 404, code: "mcp_server_not_found" },
    reason: expect.stringContaining("capsem mcp add"),
  });
  expect(await mcp.failure("capsem_mcp_call", { server_id: "tracker", tool_id: "nothing" })).toMatchObject({
    code: "mcp_tool_not_found",
    reason: expect.stringContaining("capsem_mcp_tools"),
  });
  gateway.seen.length = 0;
  expect(await mcp.failure("capsem_mcp_refresh", { server_id: "away" })).toMatchObject({
    ...{ status: 502, code: "upstream_failed" },
    reason: expect.stringMatching(/nobody listens there; whether it was carried out is unknown$/),
  });
  expect(gateway.seen).toHaveLength(1);
});

it("a blocked tool is a refusal with its rule", async () => {
  service.state.mcp.permit("tracker", "create", "block");
  const failure = await mcp.failure("capsem_mcp_call", { server_id: "tracker", tool_id: "create" });
  expect(failure).toMatchObject({
    kind: "policy",
    rule_id: expect.stringMatching(/^profiles\.rules\.mcp-tool-/),
  });
  expect(service.state.mcp.calls.some(({ tool }) => tool === "create")).toBe(false);
});

it("no tool declares a server, permits a tool or approves a definition", async () => {
  const names = (await mcp.client.listTools()).tools.map(({ name }) => name);
  for (const name of names.filter((each) => each.startsWith("capsem_mcp_")))
    expect(name).not.toMatch(/add|put|remove|delete|set|permit|approve|pin/);
});

it("the text of a long list has the tools' names, and the structure has all", async () => {
  const many = Array.from({ length: 150 }, (_, at) => ({
    name: `tool_${at}`,
    description: "x".repeat(500),
  }));
  service.state.mcp.put("large", { url: "https://large.test/" });
  service.state.mcp.upstream.set("large", many);
  await mcp.value("capsem_mcp_refresh", { server_id: "large" });
  const { content, structuredContent } = await mcp.call("capsem_mcp_tools", { server_id: "large" });
  const text = content[0]?.text ?? "";
  expect(Buffer.byteLength(text)).toBeLessThan(TEXT_MIRROR_BYTES_MAX);
  const note = JSON.parse(text) as { tools: string[] };
  expect(note.tools[0]).toBe("tool_0 (allow, pinned)");
  expect((structuredContent as { tools: unknown[] }).tools).toHaveLength(150);
});
