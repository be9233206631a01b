import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { AskInfo, McpCallResult, McpServerInfo, McpToolInfo } from "@capsem/api";
import { expect, test } from "vitest";
import { FakeLedger } from "../testing/fake-ledger.ts";
import { createVm, errorOf } from "../testing/use-rigs.ts";
import { useToolRigs } from "../testing/worker-rig.ts";

const startTools = useToolRigs();
type Row = Readonly<Record<string, string | number | null>>;

test("a call is judged, recorded with its requester, and its end is in the ledger of its scope", async () => {
  const fake = new FakeLedger({});
  const { rig, call } = await startTools({ powers: { startLedger: fake.startLedger } });
  const vm_id = await createVm(rig, { name: "dev" });
  const reply = await call("plain", { arguments: { item: "pen" } });
  const { event_id, is_error } = reply.json<McpCallResult>();
  expect(is_error).toBe(false);
  await call("guest_plain", { vm_id });
  const rows = (ledger: string): Row[] => fake.rows(ledger, "tool_calls");
  await expect.poll(() => [rows("host").length, rows(vm_id).length], { timeout: 10_000 }).toEqual([1, 1]);
  expect(rows("host")[0]).toMatchObject({
    event_id,
    requester: "user uid 1000",
    transport: "direct",
    outcome: "done",
  });
  expect(rows(vm_id)[0]).toMatchObject({ requester: "guest", transport: "framed", process_name: "agent" });
  const decisions = fake
    .rows("host", "security_decision_events")
    .filter(({ type }) => type === "mcp.tool_call");
  expect(decisions).toEqual([
    expect.objectContaining({ event_id, action: "allow", requester: "user uid 1000" }),
  ]);
});

test("a secret in the arguments of a call is in no row, however it came", async () => {
  const fake = new FakeLedger({});
  const { rig, call } = await startTools({ powers: { startLedger: fake.startLedger } });
  const secret = "sk-live-0123456789abcdef";
  await rig.client.post("/credentials/inject", { name: "shop", hosts: ["shop.example"], secret });
  await call("plain", { arguments: { key: secret } });
  await call("plain_large", { arguments: { key: secret } });
  await expect.poll(() => fake.rows("host", "tool_calls").length, { timeout: 10_000 }).toBe(2);
  const all = JSON.stringify(fake.rows("host"));
  expect(all).not.toContain(secret);
  expect(all).toContain("credential:blake3:");
  expect(fake.rows("host", "event_body_blobs").filter(({ kind }) => kind === "mcp.request")).toHaveLength(1);
});

test("a rule that asks holds the call until a person has answered; once, for the VM, and for always", async () => {
  const { rig, call, rule } = await startTools();
  const vm_id = await createVm(rig, { name: "dev" });
  await rule("ask", { action: "ask", match: 'mcp.tool_call.name == "guest_plain"', priority: 50 });
  const pending = async () => {
    const shown = async () =>
      (await rig.client.get("/asks/list?state=pending")).json<{ asks: AskInfo[] }>().asks;
    await expect.poll(async () => (await shown()).length, { timeout: 10_000 }).toBe(1);
    return (await shown())[0] as AskInfo;
  };
  const resolve = async (body: object) => {
    const ask = await pending();
    const reply = await rig.client.post(`/asks/${ask.id}/resolve`, body);
    expect(reply.status, reply.bytes.toString()).toBe(200);
    return ask;
  };
  const asked = { vm_id, arguments: { n: 1 } };
  const denied = call("guest_plain", asked);
  const ask = await resolve({ approve: false });
  expect(ask).toMatchObject({
    vm_id,
    requester: "guest",
    type: "mcp.tool_call",
    rule_id: "profiles.rules.ask",
  });
  expect(errorOf(await denied)).toMatchObject({ kind: "policy" });
  const once = call("guest_plain", asked);
  await resolve({ approve: true, scope: "once" });
  expect((await once).status).toBe(200);
  // Each call of it is another one; the approval was for that one.
  const ofVm = call("guest_plain", asked);
  expect((await resolve({ approve: true, scope: "vm" })).scopes).toEqual(["once", "vm", "always"]);
  expect([(await ofVm).status, (await call("guest_plain", asked)).status]).toEqual([200, 200]);
  const other = { vm_id, arguments: { n: 2 } };
  const always = call("guest_plain", other);
  await resolve({ approve: true, scope: "always" });
  expect([(await always).status, (await call("guest_plain", other)).status]).toEqual([200, 200]);
  expect(readFileSync(join(rig.layout.home, "settings.toml"), "utf8")).toContain(
    'mcp.tool_call.name == "guest_plain"',
  );
});

test("a ledger that is away stops calls before they are made, and they go on when it is back", async () => {
  const faults = { isMute: false } as { isMute: boolean; openFailures?: string[] };
  const fake = new FakeLedger(faults);
  const { rig, call } = await startTools({ powers: { startLedger: fake.startLedger } });
  expect((await call("plain")).status).toBe(200);
  faults.isMute = true;
  fake.die();
  rig.advance(60_000);
  await expect.poll(async () => (await call("plain")).status, { timeout: 10_000 }).not.toBe(200);
  expect(errorOf(await call("plain"))).toMatchObject({ kind: "ledger_away" });
  faults.isMute = false;
  fake.die();
  await expect.poll(async () => (await call("plain")).status, { timeout: 20_000 }).toBe(200);
});

test("credit comes back as the ledger takes what was said", async () => {
  const { call } = await startTools();
  const text = async () => {
    const { result } = (await call("credit")).json<McpCallResult>();
    return JSON.parse(String((result as { content: { text: string }[] }).content[0]?.text)) as {
      facts: number;
    };
  };
  for (let n = 0; n < 300; n++) await call("plain");
  expect((await text()).facts).toBeGreaterThan(1_000);
});

test("servers are declared, shown, looked at and forgotten; tools have permissions and pins", async () => {
  const { rig, workers } = await startTools();
  const { client } = rig;
  const put = await client.put("/mcp/servers/shop", { url: "https://shop.example/mcp", timeout_secs: 30 });
  expect(put.json<McpServerInfo>()).toMatchObject({
    name: "shop",
    state: "unseen",
    source: "user",
    tools: 0,
  });
  const { servers } = (await client.get("/mcp/servers")).json<{ servers: McpServerInfo[] }>();
  expect(servers.map(({ name }) => name)).toEqual(["shop", "local"]);
  workers.tools([{ name: "buy" }, { name: "sell" }]);
  const seen = await client.post("/mcp/servers/shop/refresh");
  expect(seen.status, seen.bytes.toString()).toBe(200);
  const tools = seen.json<{ tools: McpToolInfo[] }>().tools;
  expect(tools[0]).toMatchObject({
    name: "buy",
    listed_as: "shop__buy",
    pin: "pinned",
    permission: "default",
  });
  expect(tools[0]).toMatchObject({ decision: "allow", definition: { name: "buy" } });
  const set = await client.patch("/mcp/servers/shop/tools/buy", { permission: "block" });
  expect(set.json<McpToolInfo>()).toMatchObject({ decision: "block", permission: "block" });
  expect(errorOf(await client.patch("/mcp/servers/shop/tools/none", { permission: "block" }))).toMatchObject({
    kind: "mcp_tool_not_found",
  });
  await client.patch("/mcp/default", { permission: "ask" });
  expect((await client.get("/mcp/default")).json()).toEqual({
    permission: "ask",
    rule_id: "profiles.rules.mcp-default",
  });
  await client.patch("/mcp/default", { permission: "default" });
  expect((await client.get("/mcp/default")).json()).toEqual({ permission: "default", rule_id: null });
  workers.tools([{ name: "buy" }, { name: "steal" }]);
  await client.post("/mcp/servers/shop/refresh");
  const after = (await client.get("/mcp/servers/shop/tools")).json<{ tools: McpToolInfo[] }>().tools;
  expect(after.map(({ name, pin }) => `${name} ${pin}`)).toEqual(["buy pinned", "steal new", "sell gone"]);
  const approved = await client.post("/mcp/servers/shop/pins/approve", {});
  expect(approved.json<{ pins: { pin: string }[] }>().pins.map(({ pin }) => pin)).toEqual([
    "pinned",
    "pinned",
  ]);
  expect((await client.delete("/mcp/servers/shop")).status).toBe(200);
  expect(errorOf(await client.get("/mcp/servers/shop/tools"))).toMatchObject({
    kind: "mcp_server_not_found",
  });
  // Rules of its tools went with it.
  expect(readFileSync(join(rig.layout.home, "settings.toml"), "utf8")).not.toContain("mcp-tool-");
});

test.each([
  ["an address of this machine", { url: "http://127.0.0.1:9/mcp" }, /allows it/],
  ["metadata", { url: "http://169.254.169.254/latest" }, /credentials of the machine/],
  ["a scheme that is none", { url: "file:///etc/passwd" }, /neither http nor https/],
])("a server at %s is not declared", async (_name, body, words) => {
  const { rig } = await startTools();
  const refused = await rig.client.put("/mcp/servers/shop", body);
  expect(errorOf(refused)).toMatchObject({ kind: "invalid_input" });
  expect(errorOf(refused).reason).toMatch(words);
  const granted = await rig.client.put("/mcp/servers/shop", {
    url: "http://127.0.0.1:9/mcp",
    grants: ["127.0.0.1:9"],
  });
  expect(granted.status, granted.bytes.toString()).toBe(200);
});

test("a name that is ours is not declared, and a secret is not written into the settings", async () => {
  const { rig } = await startTools();
  const secret = "sk-live-0123456789abcdef";
  await rig.client.post("/credentials/inject", { name: "shop", hosts: ["shop.example"], secret });
  const url = "https://shop.example/mcp";
  expect(errorOf(await rig.client.put("/mcp/servers/local", { url }))).toMatchObject({
    kind: "invalid_input",
  });
  const headers = { Authorization: `Bearer ${secret}` };
  expect(errorOf(await rig.client.put("/mcp/servers/shop", { url, headers }))).toMatchObject({
    kind: "invalid_input",
  });
});
