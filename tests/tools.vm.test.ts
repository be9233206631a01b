import { join } from "node:path";
import type { TimelineEntry } from "@capsem/api";
import type { Vm } from "@capsem/sdk";
import { Client } from "@modelcontextprotocol/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { GuestClient, guestPost, guestTransport, textOf } from "./support/guest-client.ts";
import { STRUCTURED, startToolServer, type ToolServer } from "./support/mcp-servers.ts";
import { type Rig, startRig, until } from "./support/rig.ts";
import { callsOf, declare, rowsOf, shortOf } from "./support/tools-rig.ts";

let rig: Rig;
let vm: Vm;
let both: ToolServer;
let old: ToolServer;
let fresh: ToolServer;
beforeAll(async () => {
  rig = await startRig({ pool: 1 });
  [both, old, fresh] = await Promise.all([
    startToolServer("both"),
    startToolServer("legacy"),
    startToolServer("modern"),
  ]);
  vm = await rig.create({ name: "tools" });
  await declare(rig, "both", both);
  await declare(rig, "old", old);
  await declare(rig, "fresh", fresh);
});
afterAll(async () => {
  await rig.stop();
  await Promise.all([both, old, fresh].map((server) => server.close()));
});

const OWN = ["local__echo", "local__fetch_http", "local__grep_http", "local__http_headers"];

test("the first call of a fresh VM is decided by what was approved before, and asks nobody", async () => {
  const client = new GuestClient(vm);
  // No list and no handshake before it: nothing of this VM has looked at any server yet.
  const answer = await client.call("both__echo", { text: "first" });
  expect([answer.error, textOf(answer)]).toEqual([undefined, "first"]);
  await client.close();
  expect(await rig.client.asks.list({})).toEqual([]);
});

test("a client in a VM has the tools of three servers and ours, over stdio and over HTTP, and calls them", async () => {
  const client = new Client({ name: "stdio-agent", version: "1.0.0" });
  await client.connect(guestTransport(vm));
  const { tools } = await client.listTools();
  const names = ["both", "fresh", "old"].flatMap((server) =>
    ["echo", "fail", "say", "structured", "wait"].map((tool) => `${server}__${tool}`),
  );
  expect(tools.map(({ name }) => name).sort()).toEqual([...names, ...OWN].sort());
  for (const server of ["both", "old", "fresh", "local"]) {
    const result = await client.callTool({ name: `${server}__echo`, arguments: { text: `to ${server}` } });
    expect(result.content).toMatchObject([{ type: "text", text: `to ${server}` }]);
  }
  const failed = await client.callTool({ name: "old__fail", arguments: {} });
  expect(failed).toMatchObject({ isError: true });
  const { resources } = await client.listResources();
  expect(resources.map(({ uri }) => uri)).toContain("capsem://both/note://open");
  const read = await client.readResource({ uri: "capsem://old/note://open" });
  expect(read.contents).toMatchObject([{ text: "an open note" }]);
  const prompt = await client.getPrompt({ name: "fresh__greet", arguments: { who: "Ada" } });
  expect(prompt.messages).toMatchObject([{ content: { text: "Greet Ada" } }]);
  await client.close();

  const listed = await guestPost(vm, { jsonrpc: "2.0", id: 0, method: "tools/list", params: {} });
  const overHttp = ((listed.message.result?.tools ?? []) as { name: string }[]).map(({ name }) => name);
  expect(overHttp.sort()).toEqual([...names, ...OWN].sort());
  const params = { name: "fresh__echo", arguments: { text: "by curl" } };
  const posted = await guestPost(vm, { jsonrpc: "2.0", id: "", method: "tools/call", params });
  expect([posted.status, posted.message.id, textOf(posted.message)]).toEqual([200, "", "by curl"]);
});

test.each([
  ["0.0.0.0", ["127.0.0.1"]],
  ["::", ["127.0.0.1", "[::1]"]],
])("a server of the VM's own has port 80 of %s, and the tools answer beside it", async (address, own) => {
  const text = `by ${address}`;
  await vm.files.write("served", Buffer.from(text));
  const served = vm.stream({ command: `sudo python3 -m http.server 80 --bind ${address}` }).output();
  const get = async (host: string) =>
    (await vm.exec({ command: `curl -sS -m 20 http://${host}/served` })).stdout.data;
  for (const host of own) await until("it serves", 60_000, async () => (await get(host)) === text);
  const params = { name: "local__echo", arguments: { text: "beside it" } };
  const posted = await guestPost(vm, { jsonrpc: "2.0", id: 1, method: "tools/call", params });
  expect([posted.status, textOf(posted.message)]).toEqual([200, "beside it"]);
  for (const host of own) expect(await get(host)).toBe(text);
  await rig.sh(vm, "sudo pkill -f '^python3 -m http.server'");
  expect((await served).stderr).toContain("GET /served");
});

test("what a server answers reaches the program in the VM byte for byte", async () => {
  const client = new GuestClient(vm);
  for (const server of [both, old, fresh]) {
    const name = server === both ? "both" : server === old ? "old" : "fresh";
    const { texts } = client;
    expect((await client.call(`${name}__structured`)).error).toBeUndefined();
    const text = texts.at(-1) ?? "";
    const result = text.slice(text.indexOf('"result":'), -1);
    expect(result).toContain(JSON.stringify(STRUCTURED.structuredContent));
    expect(server.sent.join("\n")).toContain(result);
  }
  await client.close();
});

/** The rows of a VM's calls that came since. */
async function since(before: number) {
  return (await callsOf(rig, vm)).slice(before);
}

test("every call is one row with its decision, labels, process and times, over both ways; a list is none", async () => {
  const before = (await callsOf(rig, vm)).length;
  const client = new GuestClient(vm, { env: { CAPSEM_PROCESS_NAME: "claimed" } });
  await client.initialize();
  await client.toolNames();
  await client.call("both__echo", { text: "recorded" });
  await client.call("both__fail");
  await client.call("local__echo", { text: "ours" });
  await client.call("both__nothing");
  await client.close();
  const params = { name: "old__echo", arguments: { text: "http" } };
  await guestPost(vm, { jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const rows = await since(before);
  expect(rows.map(shortOf)).toEqual([
    "both echo done",
    "both fail done",
    "local echo done",
    "both nothing failed",
    "old echo done",
  ]);
  const [echo, , ours, , http] = rows;
  expect(echo).toMatchObject({
    ...{ origin: "mcp", transport: "framed", process_name: "claimed", method: "tools/call" },
    ...{ decision: "allow", arguments_preview: '{"text":"recorded"}', is_pinned: 1, error: null },
    label_out: expect.stringContaining("untrusted"),
  });
  expect(echo?.response_preview).toContain("recorded");
  expect(Number(echo?.duration_ms)).toBeGreaterThan(0);
  expect(ours).toMatchObject({ origin: "builtin", transport: "framed" });
  expect(http).toMatchObject({ origin: "mcp", transport: "http", process_name: "curl" });

  const shown = await rig.cli(["timeline", "tools", "--layers", "tool", "--json", "--limit", "500"]);
  const { entries } = JSON.parse(shown.stdout.toString()) as { entries: TimelineEntry[] };
  const ends = entries.filter(({ layer }) => layer === "tool");
  expect(ends).toHaveLength((await callsOf(rig, vm)).length);
  expect(ends.at(-1)).toMatchObject({
    title: expect.stringContaining("echo"),
    decision: "allow",
    outcome: "done",
  });
});

test("a program is recorded by its own name unless it claims one", async () => {
  const before = (await callsOf(rig, vm)).length;
  const client = new GuestClient(vm, {
    command: "cp /bin/sh /tmp/my-agent; /tmp/my-agent -c '/run/capsem-mcp-server; true'",
  });
  await client.call("local__echo", { text: "x" });
  await client.close();
  expect(await since(before)).toMatchObject([{ process_name: "my-agent" }]);
});

const put = (name: string, action: string, match: string, reason = "for a test", priority?: number) =>
  rig.client.rules.put(name, { action, match, reason, ...(priority === undefined ? {} : { priority }) });

test("a rule on an argument's value, edited live, stops the next call of an open connection before it is sent", async () => {
  const client = new GuestClient(vm);
  const before = (await callsOf(rig, vm)).length;
  const dispatched = both.calls.length;
  const args = { text: "DROP TABLE users" };
  expect(textOf(await client.call("both__echo", args))).toBe(args.text);
  await put("no-drop", "block", 'mcp.request.arguments.text.contains("DROP")', "tables stay");
  const refused = await client.call("both__echo", args);
  expect(refused.error).toMatchObject({
    code: -32_600,
    message: expect.stringContaining("tables stay"),
    data: { rule_id: "profiles.rules.no-drop", reason: "tables stay" },
  });
  const params = { name: "both__echo", arguments: args };
  const posted = await guestPost(vm, { jsonrpc: "2.0", id: 7, method: "tools/call", params });
  expect(posted.message).toMatchObject({ id: 7, error: { code: -32_600 } });
  expect(textOf(await client.call("both__echo", { text: "SELECT 1" }))).toBe("SELECT 1");
  await rig.client.rules.delete("no-drop");
  expect(textOf(await client.call("both__echo", args))).toBe(args.text);
  await client.close();
  expect(both.calls.slice(dispatched).map(({ args: { text } }) => text)).toEqual([
    args.text,
    "SELECT 1",
    args.text,
  ]);
  expect((await since(before)).map(shortOf)).toEqual([
    "both echo done",
    "both echo blocked",
    "both echo blocked",
    "both echo done",
    "both echo done",
  ]);
});

test("rules on an argument's name, a tool and a resource refuse those alone; deny comes before allow", async () => {
  const client = new GuestClient(vm);
  const dispatched = both.calls.length;
  const reads = old.reads.length;
  await put("no-path", "block", 'has(mcp.request.arguments) && "path" in mcp.request.arguments');
  await put("no-say", "block", 'mcp.server.name == "both" && mcp.tool_call.name == "say"');
  await put("yes-say", "allow", 'mcp.server.name == "both" && mcp.tool_call.name == "say"');
  await put("no-note", "block", 'mcp.request.uri == "note://closed"');
  const by = (name: string) => ({ error: { code: -32_600, data: { rule_id: `profiles.rules.${name}` } } });
  expect(await client.call("both__echo", { path: "/", text: "x" })).toMatchObject(by("no-path"));
  expect(await client.call("both__say")).toMatchObject(by("no-say"));
  const read = (uri: string) => client.request("resources/read", { uri });
  expect(await read("capsem://old/note://closed")).toMatchObject(by("no-note"));
  expect([both.calls.length, old.reads.length]).toEqual([dispatched, reads]);

  expect(textOf(await client.call("both__echo", { text: "x" }))).toBe("x");
  expect(textOf(await client.call("fresh__say"))).toBe("nothing to say");
  expect((await read("capsem://old/note://open")).result?.contents).toMatchObject([{ text: "an open note" }]);
  // What cannot be called whatever its arguments are is not listed.
  const names = await client.toolNames();
  expect([names.includes("both__say"), names.includes("fresh__say")]).toEqual([false, true]);
  for (const name of ["no-path", "no-say", "yes-say", "no-note"]) await rig.client.rules.delete(name);
  expect((await client.toolNames()).includes("both__say")).toBe(true);
  await client.close();
});

test("a result that a rule blocks reaches the program in no part, and the call was done", async () => {
  const client = new GuestClient(vm);
  const before = (await callsOf(rig, vm)).length;
  both.words = "begin CANARY-7f3a end";
  expect(textOf(await client.call("both__say"))).toContain("CANARY-7f3a");
  await put("no-canary", "block", 'mcp.response.content.contains("CANARY")', "it sings");
  const printed = client.texts.length;
  expect(await client.call("both__say")).toMatchObject({
    error: { code: -32_600, data: { rule_id: "profiles.rules.no-canary", reason: "it sings" } },
  });
  const params = { name: "both__say", arguments: {} };
  const posted = await guestPost(vm, { jsonrpc: "2.0", id: 1, method: "tools/call", params });
  await rig.client.rules.delete("no-canary");
  await client.close();
  expect(JSON.stringify([client.texts.slice(printed), posted])).not.toContain("CANARY");
  const rows = await since(before);
  expect(rows.map(shortOf)).toEqual(Array(3).fill("both say done"));
  expect(rows[0]?.response_preview).toContain("CANARY");
  expect(rows.slice(1).map((row) => row.response_preview)).toEqual([null, null]);
  // What was judged is kept as evidence, where no program of the VM can read it.
  const events = (await rowsOf(rig, vm.id, "security_decision_events")).filter(
    ({ type }) => type === "mcp.tool_result",
  );
  expect(events.at(-1)).toMatchObject({ action: "block" });
  const shown = await rig.cli(["timeline", "tools", "--json", "--layers", "tool,rule", "--limit", "3"]);
  expect(shown).toMatchObject({ code: 0 });
  expect(shown.stdout.toString()).not.toContain("CANARY");
});

/** The one ask that waits. */
async function waitingAsk() {
  let id = "";
  await until("somebody is asked", 20_000, async () => {
    const [ask] = await rig.client.asks.list({ state: "pending" });
    id = ask?.id ?? "";
    return id !== "";
  });
  return id;
}

test("a call waits for a person at another terminal, runs once when approved, and not when denied or expired", async () => {
  await put("ask-echo", "ask", 'mcp.tool_call.name == "echo" && mcp.server.name == "old"', "it is loud");
  const client = new GuestClient(vm);
  const before = (await callsOf(rig, vm)).length;
  const dispatched = old.calls.length;
  const held = client.call("old__echo", { text: "may I" });
  const id = await waitingAsk();
  expect(old.calls).toHaveLength(dispatched);
  // Others go on meanwhile, on the same connection.
  expect(textOf(await client.call("both__echo", { text: "meanwhile" }))).toBe("meanwhile");
  const list = await rig.cli(["asks", "list"]);
  expect(list.stdout.toString()).toMatch(/tools.*echo/);
  expect(await rig.cli(["asks", "approve", id.slice(4, 10)])).toMatchObject({ code: 0 });
  expect(textOf(await held)).toBe("may I");
  expect(old.calls).toHaveLength(dispatched + 1);

  const denied = client.call("old__echo", { text: "and now" });
  expect(await rig.cli(["asks", "deny", (await waitingAsk()).slice(4, 10), "--note", "no"])).toMatchObject({
    code: 0,
  });
  expect(await denied).toMatchObject({
    error: { code: -32_600, data: { rule_id: "profiles.rules.ask-echo" } },
  });
  expect((await denied).error?.message).toContain("no");

  await rig.client.settings.edit([{ key: "asks.unattended_secs", value: 1 }]);
  const expired = await client.call("old__echo", { text: "anybody" });
  expect(expired).toMatchObject({ error: { code: -32_600 } });
  await rig.client.settings.edit([{ key: "asks.unattended_secs", value: null }]);
  await rig.client.rules.delete("ask-echo");
  await client.close();
  expect(old.calls).toHaveLength(dispatched + 1);
  expect((await since(before)).map(shortOf).sort()).toEqual([
    "both echo done",
    "old echo denied",
    "old echo done",
    "old echo expired",
  ]);
});

test("a call that is cancelled ends at its server and once in the ledger", async () => {
  const client = new GuestClient(vm);
  const before = (await callsOf(rig, vm)).length;
  const { id, answer } = client.begin("tools/call", { name: "old__wait", arguments: { name: "c1" } });
  await until("it runs", 20_000, () => old.calls.some(({ args }) => args.name === "c1"));
  await client.notify("notifications/cancelled", { requestId: id });
  await until("its server is told", 20_000, () => old.cancelled.includes("c1"));
  await until("it has ended", 20_000, async () => (await since(before)).length === 1);
  expect((await since(before)).map(shortOf)).toEqual(["old wait cancelled"]);
  const late = await Promise.race([
    answer.then(
      () => "answered",
      () => "none",
    ),
    client.call("local__echo", { text: "x" }).then(() => "none yet"),
  ]);
  expect(late).toBe("none yet");
  // A program that leaves cancels what it began.
  client.begin("tools/call", { name: "old__wait", arguments: { name: "c2" } });
  await until("it runs", 20_000, () => old.calls.some(({ args }) => args.name === "c2"));
  await rig.sh(vm, "pkill -9 capsem-mcp-serv; true");
  await until("its server is told", 20_000, () => old.cancelled.includes("c2"));
  await until("it has ended", 20_000, async () => (await since(before)).length === 3);
  expect((await since(before)).map(shortOf)).toEqual([
    "old wait cancelled",
    "local echo done",
    "old wait cancelled",
  ]);
});

test("a call that takes longer than its server may fails with -32000 and one row", async () => {
  await declare(rig, "slow", both, "--timeout-secs", "1");
  const client = new GuestClient(vm);
  const before = (await callsOf(rig, vm)).length;
  expect(await client.call("slow__wait", { name: "t1" })).toMatchObject({ error: { code: -32_000 } });
  await client.close();
  expect((await since(before)).map(shortOf)).toEqual(["slow wait failed"]);
  expect((await since(before))[0]?.error).toContain("no answer");
  await until("its server is told", 20_000, () => both.cancelled.includes("t1"));
  expect(await rig.cli(["mcp", "remove", "slow"])).toMatchObject({ code: 0 });
});

test("two clients with the same request ids get their own answers, each call runs once, and one session serves all", async () => {
  const before = (await callsOf(rig, vm)).length;
  const dispatched = old.calls.length;
  const clients = [new GuestClient(vm), new GuestClient(vm)];
  const handshakes = old.handshakes();
  const texts = clients.map((_, who) => Array.from({ length: 32 }, (_, at) => `client ${who} call ${at}`));
  const answers = await Promise.all(
    clients.map((client, who) =>
      Promise.all((texts[who] ?? []).map(async (text) => textOf(await client.call("old__echo", { text })))),
    ),
  );
  expect(answers).toEqual(texts);
  expect(
    old.calls
      .slice(dispatched)
      .map(({ args }) => args.text)
      .sort(),
  ).toEqual(texts.flat().sort());
  expect(old.handshakes()).toBe(handshakes);
  expect(await since(before)).toHaveLength(64);
  await Promise.all(clients.map((client) => client.close()));
});

test("a server that is declared, changed or removed while a client is connected is told to it, and others go on", async () => {
  const client = new GuestClient(vm);
  await client.initialize();
  await client.toolNames();
  const { answer } = client.begin("tools/call", { name: "old__wait", arguments: { name: "through it all" } });
  const told = () =>
    client.notifications.filter(({ method }) => method === "notifications/tools/list_changed").length;
  await declare(rig, "late", fresh);
  await until("the client is told", 10_000, () => told() > 0);
  await until("it is listed", 10_000, async () => (await client.toolNames()).includes("late__echo"));
  expect(textOf(await client.call("late__echo", { text: "late" }))).toBe("late");
  const soFar = told();
  expect(await rig.cli(["mcp", "remove", "late"])).toMatchObject({ code: 0 });
  await until("the client is told", 10_000, () => told() > soFar);
  expect((await client.toolNames()).filter((name) => name.startsWith("late"))).toEqual([]);
  expect((await client.call("late__echo", { text: "gone" })).error).toBeDefined();
  old.release("through it all");
  expect(textOf(await answer)).toBe("waited through it all");
  await client.close();
});

test("one tool is permitted, asked about or blocked by a command, and by the default of all", async () => {
  const client = new GuestClient(vm);
  const run = async (...words: readonly string[]) =>
    expect(await rig.cli(["mcp", ...words])).toMatchObject({ code: 0 });
  await run("permit", "both", "say", "block");
  expect((await client.call("both__say")).error?.data?.rule_id).toMatch(/^profiles\.rules\.mcp-tool-/);
  await run("default", "block");
  expect((await client.call("both__echo", { text: "x" })).error?.data?.rule_id).toBe(
    "profiles.rules.mcp-default",
  );
  await run("permit", "both", "say", "allow");
  expect((await client.call("both__say")).error).toBeUndefined();
  await run("permit", "both", "say", "default");
  expect((await client.call("both__say")).error?.data?.rule_id).toBe("profiles.rules.mcp-default");
  await run("default", "default");
  expect((await client.call("both__say")).error).toBeUndefined();
  await client.close();
});

test("a call from the host's terminal goes the same way: by the VM's proxy and into its ledger, or the host's own", async () => {
  const before = (await callsOf(rig, vm)).length;
  const hostBefore = (await rowsOf(rig, "host", "tool_calls")).length;
  const call = async (...more: readonly string[]) =>
    rig.cli(["mcp", "call", "both", "echo", "--arg", "text=from-host", "--json", ...more]);
  const inVm = await call("--vm", "tools");
  expect([inVm.code, inVm.stdout.toString()]).toEqual([0, expect.stringContaining("from-host")]);
  expect((await since(before)).map(shortOf)).toEqual(["both echo done"]);
  expect((await since(before))[0]).toMatchObject({ transport: "direct", process_name: null });
  expect(await call()).toMatchObject({ code: 0 });
  expect((await rowsOf(rig, "host", "tool_calls")).slice(hostBefore).map(shortOf)).toEqual([
    "both echo done",
  ]);

  await put("not-by-hand", "block", 'vm.name == "tools" && mcp.request.arguments.text == "from-host"');
  const refused = await call("--vm", "tools");
  expect(refused.code).toBe(1);
  expect(refused.stdout.toString() + refused.stderr).toContain("profiles.rules.not-by-hand");
  expect(await call()).toMatchObject({ code: 0 });
  await rig.client.rules.delete("not-by-hand");
});

test("the calls of a VM that is gone stay in its story, and an export of them verifies", async () => {
  const other = await rig.create({ name: "gone" });
  const client = new GuestClient(other);
  await client.call("both__echo", { text: "remember me" });
  await client.close();
  await other.delete();
  const shown = await rig.cli(["timeline", "gone", "--layers", "tool", "--json"]);
  const { entries } = JSON.parse(shown.stdout.toString()) as { entries: TimelineEntry[] };
  expect(entries).toMatchObject([{ layer: "tool", outcome: "done", decision: "allow" }]);
  const file = join(rig.home, "gone.jsonl");
  expect(await rig.cli(["ledger", "export", "gone", "--output", file])).toMatchObject({ code: 0 });
  expect(await rig.cli(["ledger", "verify", "gone"])).toMatchObject({ code: 0 });
});
