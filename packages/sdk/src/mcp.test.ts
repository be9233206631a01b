import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client } from "./client.ts";
import { CapsemError, errorOfObject } from "./error.ts";
import { type Rig, startWays, WAYS } from "./testing/ways.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startWays();
});
afterAll(() => rig.close());

async function failure(work: Promise<unknown>): Promise<CapsemError> {
  try {
    await work;
  } catch (thrown) {
    if (thrown instanceof CapsemError) return thrown;
    throw thrown;
  }
  throw new Error("it did not fail");
}

describe.each(WAYS)("over the %s", (way) => {
  let client: Client;
  const name = `s${WAYS.indexOf(way)}`;
  beforeAll(() => {
    client = rig.client(way);
  });

  test("a server is declared, looked at, changed and forgotten", async () => {
    const url = "https://tracker.test/mcp";
    const headers = { Authorization: "Bearer canary" };
    const declared = await client.mcp.putServer(name, { url, headers, timeout_secs: 20 });
    expect(declared).toMatchObject({
      name,
      url,
      source: "user",
      state: "unseen",
      headers: ["Authorization"],
    });
    expect(JSON.stringify(declared)).not.toContain("canary");
    expect(await client.mcp.tools(name)).toEqual([]);
    const tools = await client.mcp.refresh(name);
    expect(tools.map((tool) => [tool.name, tool.listed_as, tool.pin])).toEqual([
      ["search", `${name}__search`, "pinned"],
      ["create", `${name}__create`, "pinned"],
      ["fail", `${name}__fail`, "pinned"],
    ]);
    expect((await client.mcp.servers()).find((server) => server.name === name)).toMatchObject({
      ...{ state: "ok", tools: 3, quarantined: 0 },
    });
    expect(await client.mcp.putServer(name, { url, enabled: false })).toMatchObject({
      ...{ enabled: false, timeout_secs: 300, headers: [] },
    });
    const { digest } = await client.mcp.deleteServer(name);
    expect(digest).toMatch(/^[0-9]{64}$/);
    expect((await failure(client.mcp.tools(name))).kind).toBe("mcp_server_not_found");
  });

  test("a private address is refused with what would allow it", async () => {
    const url = "http://127.0.0.1:8080/mcp";
    const error = await failure(client.mcp.putServer(name, { url }));
    expect(error).toMatchObject({ kind: "invalid_input", grant: "127.0.0.1:8080" });
    expect(error.toJSON().error.grant).toBe("127.0.0.1:8080");
    await client.mcp.putServer(name, { url, grants: [error.grant ?? ""] });
    await client.mcp.deleteServer(name);
  });

  test("what a tool meets is said for one or for all", async () => {
    expect(await client.mcp.setDefault("ask")).toEqual({
      permission: "ask",
      rule_id: "profiles.rules.mcp-default",
    });
    expect((await client.mcp.tools("local"))[0]).toMatchObject({ name: "echo", decision: "ask" });
    const blocked = await client.mcp.setPermission("local", "echo", "block");
    expect(blocked).toMatchObject({ permission: "block", decision: "block" });
    const error = await failure(client.mcp.call({ server_id: "local", tool_id: "echo" }));
    expect(error).toMatchObject({ kind: "policy", ruleId: blocked.rule_id });
    await client.mcp.setPermission("local", "echo", "default");
    await client.mcp.setDefault("default");
    expect(await client.mcp.default()).toEqual({ permission: "default", rule_id: null });
  });

  test("a definition that has changed is shown, and approved as it was looked at", async () => {
    await client.mcp.putServer(name, { url: "https://tracker.test/mcp" });
    await client.mcp.refresh(name);
    const said = (description: string) =>
      rig.service.state.mcp.upstream.set(name, [{ name: "search", description }]);
    said("Searches, and mails what it finds");
    await client.mcp.refresh(name);
    const [pin] = await client.mcp.pins(name);
    expect(pin).toMatchObject({ tool: "search", pin: "changed" });
    expect(pin?.difference).toContain('- description: "Searches issues"');
    expect(pin?.difference).toContain('+ description: "Searches, and mails what it finds"');
    said("Searches, and deletes what it finds");
    await client.mcp.refresh(name);
    const approve = { tool: "search", hash: pin?.current_hash ?? "" };
    expect((await failure(client.mcp.approvePins(name, approve))).kind).toBe("wrong_state");
    expect((await client.mcp.pins(name))[0]?.pin).toBe("changed");
    expect((await client.mcp.approvePins(name))[0]?.pin).toBe("pinned");
    rig.service.state.mcp.upstream.delete(name);
    await client.mcp.deleteServer(name);
  });

  test("a tool is called, in the name of a VM too, and its own failure is a result", async () => {
    await client.mcp.putServer(name, { url: "https://tracker.test/mcp" });
    await client.mcp.refresh(name);
    const vm = await client.create();
    const args = { text: "hello", deep: { list: [1, null] } };
    const call = { server_id: name, tool_id: "search", arguments: args, vm_id: vm.id };
    const { is_error, result, event_id } = await client.mcp.call(call);
    expect({ is_error, structured: result.structuredContent }).toEqual({
      is_error: false,
      structured: args,
    });
    expect(event_id).toMatch(/^[0-9a-f]{12}$/);
    expect(rig.service.state.mcp.calls.at(-1)).toEqual({ server: name, tool: "search", vmId: vm.id });
    expect(await client.mcp.call({ server_id: name, tool_id: "fail" })).toMatchObject({ is_error: true });
    expect((await failure(client.mcp.call({ server_id: name, tool_id: "nothing" }))).kind).toBe(
      "mcp_tool_not_found",
    );
    await vm.delete();
    await client.mcp.deleteServer(name);
  });

  test("a server that is away is an error of its own, and nothing is tried again", async () => {
    await client.mcp.putServer(name, { url: "https://away.test/mcp" });
    const before = rig.service.seen.length;
    const error = await failure(client.mcp.refresh(name));
    expect(error).toMatchObject({ kind: "upstream_failed", status: 502, outcome: "none" });
    expect(rig.service.seen.slice(before)).toHaveLength(1);
    expect(await client.mcp.info()).toMatchObject({ failed: 1, guest: { stdio: "/run/capsem-mcp-server" } });
    await client.mcp.deleteServer(name);
  });
});

test("a name that is no part of a path cannot reach another route", async () => {
  const client = rig.client("socket");
  const before = rig.service.seen.length;
  expect((await failure(client.mcp.tools("../asks/list"))).kind).toBe("mcp_server_not_found");
  expect(rig.service.seen[before]).toBe("GET /mcp/servers/..%2Fasks%2Flist/tools");
});

test("of a grant only a text is taken over", () => {
  const object = { kind: "invalid_input", reason: "no" };
  expect(errorOfObject({ ...object, grant: "a:1" }).grant).toBe("a:1");
  expect(errorOfObject({ ...object, grant: { host: "a" } }).grant).toBeUndefined();
});
