import type { McpCallResult, McpServerInfo } from "@capsem/api";
import { joinName, joinUri, memberOf, withMember } from "@capsem/mcp-protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ClientHome, openClientHome } from "./clients.ts";
import { type LaneStand, openLaneStand } from "./lane-stand.ts";
import { listAll, openRawClient, type RawClient } from "./raw-mcp.ts";
import { skipUnless } from "./skip.ts";
import { startToolServer, TOOL_SERVERS, type ToolServer, type ToolServerName } from "./tool-servers.ts";

const NAMES = Object.keys(TOOL_SERVERS) as ToolServerName[];
/** By the older transport a raw client is another one: it has the tools of its twin, which are compared. */
const COMPARED = NAMES.filter((name) => name !== "events");

const textIn = (object: string, member: string) => JSON.parse(memberOf(object, member) ?? '""') as string;
const nameOf = (definition: string) => textIn(definition, "name");
/** As the proxy lists it: all else stays as it was written. */
const renamed = (server: string) => (text: string) =>
  withMember(text, "name", JSON.stringify(joinName(server, nameOf(text))));
/** Of what clients see of one server. */
const isOf = (server: string) => (text: string) => nameOf(text).startsWith(joinName(server, ""));

/** Calls whose answers are the same each time. */
const CALLS = [
  ["everything", "echo", { message: "größer als 2⁵³: 9007199254740993" }],
  ["everything", "get-structured-content", { location: "New York" }],
  ["everything", "get-tiny-image", {}],
  ["everything", "get-annotated-message", { messageType: "error", includeImage: true }],
  ["everything", "get-resource-links", { count: 3 }],
  ["everything", "get-sum", { a: 1, b: 1e21 }],
  ["everything", "get-sum", { a: "no number" }],
  ["monitor", "get-system-info", {}],
  ["git", "git_wrapup_instructions", { acknowledgement: "yes" }],
  ["git", "git_status", { path: "/nowhere" }],
] as const;

describe("servers that others wrote, behind one proxy", skipUnless("servers"), () => {
  let home: ClientHome;
  let stand: LaneStand;
  let guest: RawClient;
  const servers = new Map<ToolServerName, ToolServer>();
  const direct = new Map<ToolServerName, RawClient>();
  beforeAll(async () => {
    home = openClientHome();
    stand = await openLaneStand();
    for (const name of NAMES) {
      const server = await startToolServer(name, home);
      servers.set(name, server);
      await stand.declare(name, server.fields);
    }
    for (const name of COMPARED) {
      const { port, fields } = servers.get(name) as ToolServer;
      const { host, pathname } = new URL(fields.url);
      direct.set(name, await openRawClient({ port, path: pathname, host }));
    }
    guest = await openRawClient({ port: stand.port, path: "/mcp", host: "mcp.capsem.internal" });
  }, 240_000);
  afterAll(async () => {
    guest?.close();
    for (const client of direct.values()) client.close();
    await stand?.stop();
    for (const server of servers.values()) await server.stop();
    await home?.remove();
  });

  const client = (name: ToolServerName) => direct.get(name) as RawClient;

  test("each is seen, in the revision that it speaks, and none is sick", async () => {
    const { servers: shown } = (await stand.rig.client.get("/mcp/servers")).json<{
      servers: McpServerInfo[];
    }>();
    const found = Object.fromEntries(
      shown.map(({ name, state, server_info, error }) => [
        name,
        error ?? `${state} ${server_info?.protocol}`,
      ]),
    );
    expect(found).toMatchObject({
      everything: "ok 2025-11-25",
      events: "ok 2025-11-25",
      monitor: "ok 2025-11-25",
      browser: "ok 2025-11-25",
      context: "ok 2026-07-28",
      firecrawl: "ok 2025-06-18",
      git: "ok 2025-11-25",
    });
  });

  test.each(COMPARED)(
    "%s: every definition reaches the guest byte for byte, but for its name",
    async (name) => {
      const own = await listAll(client(name), "tools/list", "tools");
      expect(own.length).toBeGreaterThan(0);
      const listed = await listAll(guest, "tools/list", "tools");
      expect(listed.filter(isOf(name))).toEqual(own.map(renamed(name)));
    },
  );

  test("the older transport brings the same tools as the newer, and nobody else has any", async () => {
    const listed = await listAll(guest, "tools/list", "tools");
    const own = await listAll(client("everything"), "tools/list", "tools");
    expect(listed.filter(isOf("events"))).toEqual(own.map(renamed("events")));
    const known = [...NAMES, "local"].map(isOf);
    expect(listed.filter((text) => !known.some((is) => is(text)))).toEqual([]);
  });

  test.each(CALLS)(
    "%s: %s answers the guest with the bytes that it answers anybody with",
    async (server, tool, args) => {
      const said = await client(server).request("tools/call", { name: tool, arguments: args });
      const name = joinName(server, tool);
      expect(await guest.request("tools/call", { name, arguments: args })).toBe(said);
      // The host's calls go the same way.
      const body = { server_id: server, tool_id: tool, arguments: args };
      const called = await stand.rig.client.post("/mcp/call", body);
      expect(called.status, called.bytes.toString()).toBe(200);
      expect(JSON.stringify(called.json<McpCallResult>().result)).toBe(said);
    },
  );

  test("a call by the older transport is answered as by the newer", async () => {
    const params = { arguments: { message: "twice" } };
    const said = await client("everything").request("tools/call", { ...params, name: "echo" });
    expect(await guest.request("tools/call", { ...params, name: "events__echo" })).toBe(said);
  });

  test("prompts and resources come likewise, and what is read of one is its server's own", async () => {
    const own = client("everything");
    const prompts = await listAll(own, "prompts/list", "prompts");
    expect(prompts.length).toBeGreaterThan(0);
    const listed = await listAll(guest, "prompts/list", "prompts");
    expect(listed.filter(isOf("everything"))).toEqual(prompts.map(renamed("everything")));
    const resources = await listAll(own, "resources/list", "resources");
    expect(resources.length).toBeGreaterThan(0);
    const ours = (text: string) =>
      withMember(text, "uri", JSON.stringify(joinUri("everything", textIn(text, "uri"))));
    const shown = await listAll(guest, "resources/list", "resources");
    expect(shown.filter((text) => textIn(text, "uri").startsWith("capsem://everything/"))).toEqual(
      resources.map(ours),
    );
    const uri = textIn(resources[0] ?? "{}", "uri");
    const read = await own.request("resources/read", { uri });
    expect(await guest.request("resources/read", { uri: joinUri("everything", uri) })).toBe(read);
    const args = { name: "args-prompt", arguments: { city: "Paris", state: "Texas" } };
    const got = await own.request("prompts/get", args);
    expect(await guest.request("prompts/get", { ...args, name: "everything__args-prompt" })).toBe(got);
  });

  test("each call of the guest is in its VM's ledger, and those of the host in the host's", async () => {
    const calls = async (path: string) => {
      const { entries } = (await stand.rig.client.get(`${path}/timeline?layers=tool&limit=1000`)).json<{
        entries: readonly unknown[];
      }>();
      return entries.length;
    };
    await expect.poll(() => calls(`/vms/${stand.vmId}`)).toBe(CALLS.length + 1);
  });
});
