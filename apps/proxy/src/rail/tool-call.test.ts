import { expect, test } from "vitest";
import { readablePart, resultParts } from "../judge/result-fields.ts";
import { railRig } from "../testing/rail-rig.ts";
import { type ScriptedServer, said, tool } from "../testing/scripted-servers.ts";
import type { Message } from "../testing/test-client.ts";

const rule = (name: string, match: string, action = "block", more = "") =>
  `[profiles.rules.${name}]\naction = "${action}"\nmatch = '''${match}'''\nreason = "for a test"\n${more}\n`;
const textOf = ({ result }: Message) => (result?.content as { text: string }[] | undefined)?.[0]?.text;
const files = (more: Partial<ScriptedServer> = {}): Record<string, ScriptedServer> => ({
  files: { tools: [tool("read"), tool("write")], ...more },
});
const never = () => new Promise<never>(() => undefined);

test("a call goes to its server and its answer to the client; intent, result and end are recorded", async () => {
  const rig = await railRig({ servers: files() });
  const client = rig.client();
  await client.initialize();
  const answer = await client.call("files__read", { path: "/a" }, { _meta: { keep: 1 } });
  expect(textOf(answer)).toBe(
    'files tools/call {"name":"read","_meta":{"keep":1},"arguments":{"path":"/a"}}',
  );
  await rig.settled();
  const [call] = rig.service.calls;
  expect(rig.service.calls).toHaveLength(1);
  expect(call).toMatchObject({
    outcome: "done",
    error: null,
    who: { requester: "guest", client: "test 1" },
    call: {
      ...{ server_name: "files", tool_name: "read", origin: "mcp", transport: "framed" },
      ...{ process_name: "agent", arguments_preview: '{"path":"/a"}', bytes_sent: 13, is_pinned: true },
    },
  });
  const [intent] = rig.service.decisionsOf("mcp.tool_call");
  expect(intent?.who.event_id).toBe(call?.who.event_id);
  expect(rig.service.decisionsOf("mcp.tool_result")).toHaveLength(1);
  const kinds = rig.service.facts.map((fact) => (fact.kind === "decision" ? fact.event.type : fact.kind));
  expect(kinds.indexOf("mcp.tool_call")).toBeLessThan(kinds.indexOf("call"));
});

test("what a server answers passes byte for byte, whatever its spelling", async () => {
  const raw =
    '{ "content" : [ {"type":"text","text":"\\u00e9\\/x"} ],"structuredContent":{"n":1.0,"big":12345678901234567890,"e":1E5},"x-unknown":[ 1 ],"_meta":{"b":1,"a":2}}';
  const rig = await railRig({ servers: files({ serve: async () => ({ raw }) }) });
  const client = rig.client();
  await client.begin("tools/call", { name: "files__read" }, 7);
  expect(client.texts.at(-1)).toBe(`{"jsonrpc":"2.0","id":7,"result":${raw}}`);
});

test.each([
  ["short", 10, 0],
  ["long", 200_000, 1],
])(
  "%s arguments and answers are the same to the server, the client and the ledger",
  async (_, count, large) => {
    const rig = await railRig({ servers: files() });
    const client = rig.client();
    await client.initialize();
    const path = 'é🙂"\n'.repeat(count);
    const answer = await client.call("files__read", { path, n: 1 }, { _meta: { keep: 1 } });
    const args = JSON.stringify({ path, n: 1 });
    const asked = `{"name":"read","_meta":{"keep":1},"arguments":${args}}`;
    expect(textOf(answer) === `files tools/call ${asked}`).toBe(true);
    expect(rig.aggregator.largeCalls).toBe(large);
    await rig.settled();
    const [fact] = rig.service.calls;
    const result = JSON.stringify(said(`files tools/call ${asked}`).result);
    expect(fact?.call.bytes_sent).toBe(Buffer.byteLength(args));
    expect(fact?.call.bytes_received).toBe(Buffer.byteLength(result));
    expect(fact?.call.arguments_preview === args.slice(0, 4_096)).toBe(true);
    expect(fact?.call.response_preview === result.slice(0, 4_096)).toBe(true);
    expect(fact?.bodies?.request?.text).toBe(large === 1 ? args : undefined);
    expect(fact?.bodies?.response?.text).toBe(large === 1 ? result : undefined);
  },
);

test.each(["é🙂\\u00e9\\n ".repeat(100_000), `${"x".repeat(131_073)}\\u00e9`, "\\\\".repeat(65_540)])(
  "of a long text that a server answers rules read as much as of one that is not",
  async (filler) => {
    const raw = `{"content":[{"type":"text","text":"${filler}"}],"structuredContent":{"a":1},"_meta":{"b":1}}`;
    const rig = await railRig({ servers: files({ serve: async () => ({ raw }) }) });
    const client = rig.client();
    await client.begin("tools/call", { name: "files__read" }, 7);
    expect(client.texts.at(-1) === `{"jsonrpc":"2.0","id":7,"result":${raw}}`).toBe(true);
    await rig.settled();
    const [decision] = rig.service.decisionsOf("mcp.tool_result");
    const { fields } = resultParts(raw, false);
    const seen = decision?.event.fields as Record<string, unknown>;
    expect(seen["mcp.response.structured"]).toEqual({ a: 1 });
    expect(seen["mcp.truncated"]).toBe(true);
    const content = String(fields["mcp.response.content"]);
    expect(content.startsWith(String(seen["mcp.response.content"]))).toBe(true);
    const part = readablePart({ text: raw, bytes: Buffer.from(raw) });
    expect(part.length).toBeLessThan(raw.length + 1);
    expect(resultParts(part, false)).toEqual(resultParts(raw, false));
  },
);

test("an error of a server passes as it is, and its call has failed", async () => {
  const error = { code: -32_050, message: "no", data: { a: 1 } };
  const rig = await railRig({ servers: files({ serve: async () => ({ error }) }) });
  expect((await rig.client().call("files__read")).error).toEqual(error);
  await rig.settled();
  expect(rig.service.calls).toMatchObject([{ outcome: "failed" }]);
});

test("a tool that says that it failed was called, and its row says what came of it", async () => {
  const failing = { content: [{ type: "text", text: "no such thing" }], isError: true };
  const serve: ScriptedServer["serve"] = async ({ params }) =>
    params?.includes('"read"') === true ? { result: failing } : said("isError is a word of mine");
  const rig = await railRig({ servers: files({ serve }) });
  const client = rig.client();
  expect((await client.call("files__read")).result).toMatchObject({ isError: true });
  await client.call("files__write");
  await rig.settled();
  expect(rig.service.calls.map(({ outcome, error }) => [outcome, error])).toEqual([
    ["done", "tool_error"],
    ["done", null],
  ]);
});

test.each<[string, string]>([
  ["a name twice", '{"name":"files__read","arguments":{"a":1,"a":2}}'],
  ["a name twice by an escape", '{"name":"files__read","arguments":{"a":1,"\\u0061":2}}'],
  ["an integer beyond 2^53", '{"name":"files__read","arguments":{"a":9007199254740993}}'],
  ["a number that is none", '{"name":"files__read","arguments":{"a":1e999}}'],
  ["a prototype", '{"name":"files__read","arguments":{"a":{"__proto__":1}}}'],
  ["a prototype by an escape", '{"name":"files__read","arguments":{"\\u005f_proto__":1}}'],
])("%s in a request is refused before anything is done", async (_, params) => {
  const rig = await railRig({ servers: files() });
  const client = rig.client();
  await client.receive(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`);
  expect(client.messages.at(-1)?.error?.code).toBe(-32_600);
  expect(rig.aggregator.requests).toEqual([]);
});

test("without the rule the call passes; with it the tool is not called, the rule is named, and hints are not", async () => {
  const rig = await railRig({ servers: files() });
  const client = rig.client();
  expect((await client.call("files__read", { path: "/etc/passwd" })).error).toBeUndefined();
  await rig.rules(rule("etc", 'mcp.request.arguments.path.startsWith("/etc")'));
  const { error } = await client.call("files__read", { path: "/etc/passwd" });
  expect(error).toEqual({
    code: -32_600,
    message: 'Cannot call "read" of files: blocked by profiles.rules.etc: for a test',
    data: { rule_id: "profiles.rules.etc", reason: "for a test" },
  });
  expect(rig.aggregator.requests).toHaveLength(1);
  expect((await client.call("files__read", { path: "/tmp" })).error).toBeUndefined();
  await rig.settled();
  expect(rig.service.calls.map(({ outcome }) => outcome)).toEqual(["done", "blocked", "done"]);
});

test("a result that a rule blocks is withheld whole; the call was done", async () => {
  const rig = await railRig({ servers: files({ serve: async () => said("the CANARY sings") }) });
  const client = rig.client();
  expect(textOf(await client.call("files__read"))).toContain("CANARY");
  await rig.rules(rule("canary", 'mcp.response.content.contains("CANARY")'));
  const before = client.texts.length;
  const { error } = await client.call("files__read");
  expect(error).toMatchObject({ code: -32_600, data: { rule_id: "profiles.rules.canary" } });
  expect(client.texts.slice(before).join()).not.toContain("CANARY");
  await rig.settled();
  expect(rig.service.calls.map(({ call }) => call.response_preview === null)).toEqual([false, true]);
  expect(rig.service.calls.at(-1)).toMatchObject({ outcome: "done", decision: { action: "allow" } });
  expect(rig.service.decisionsOf("mcp.tool_result").at(-1)?.decision.action).toBe("block");
});

test("what leaks by progress, logs or an error is judged like a result", async () => {
  const serve: ScriptedServer["serve"] = async ({ notify }) => {
    await notify("notifications/progress", { progressToken: "t", progress: 1, message: "CANARY" });
    await notify("notifications/message", { level: "error", data: "CANARY" });
    return { error: { code: 1, message: "CANARY" } };
  };
  const rig = await railRig({ servers: files({ serve }) });
  const client = rig.client();
  const call = () => client.call("files__read", {}, { _meta: { progressToken: "t" } });
  await call();
  expect(client.texts.filter((text) => text.includes("CANARY"))).toHaveLength(3);
  await rig.rules(rule("canary", 'mcp.response.content.contains("CANARY")'));
  const before = client.texts.length;
  await call();
  expect(client.texts.slice(before)).toHaveLength(1);
  expect(client.texts.at(-1)).not.toContain("CANARY");
});

test.each<["approved" | "denied" | "expired" | "pending", string, number]>([
  ["approved", "done", 1],
  ["denied", "denied", 0],
  ["expired", "expired", 0],
  ["pending", "asked", 0],
])("a call that asks and is %s ends as %s", async (state, outcome, requests) => {
  const rig = await railRig({ servers: files(), rules: rule("a", 'event.type == "mcp.tool_call"', "ask") });
  const client = rig.client();
  const call = client.call("files__read");
  await expect.poll(() => rig.service.asks.length).toBe(1);
  expect(rig.aggregator.requests).toEqual([]);
  expect(rig.service.asks[0]?.ask).toMatchObject({ title: 'call "read" of files', is_later: false });
  rig.service.asks[0]?.resolve(state);
  const { error } = await call;
  if (state === "approved") expect(error).toBeUndefined();
  else expect(error).toMatchObject({ code: -32_600, data: { ask_id: "ask_abcdefghij234567" } });
  await rig.settled();
  expect(rig.service.calls.map((each) => each.outcome)).toEqual([outcome]);
  expect(rig.aggregator.requests).toHaveLength(requests);
});

test("a rule that asked of the call does not ask again of its result, unless it reads the result", async () => {
  const rig = await railRig({ servers: files(), rules: rule("a", 'mcp.tool_call.name == "read"', "ask") });
  const client = rig.client();
  const call = client.call("files__read");
  await expect.poll(() => rig.service.asks.length).toBe(1);
  rig.service.asks[0]?.resolve("approved");
  await call;
  expect(rig.service.asks).toHaveLength(1);
  await rig.rules(rule("a", 'mcp.tool_call.name == "read" && has(mcp.response.content)', "ask"));
  const second = client.call("files__read");
  await expect.poll(() => rig.service.asks.length).toBe(2);
  rig.service.asks[1]?.resolve("denied");
  expect((await second).error?.code).toBe(-32_600);
});

test("held asks take no place: other calls run beside them", async () => {
  const rig = await railRig({
    ...{ servers: files(), cores: 1 },
    rules: rule("a", 'mcp.tool_call.name == "write"', "ask"),
  });
  const client = rig.client();
  for (let count = 0; count < 20; count += 1) void client.begin("tools/call", { name: "files__write" });
  await expect.poll(() => rig.service.asks.length).toBe(20);
  expect((await client.call("files__read")).error).toBeUndefined();
});

test("a client that cancels a held call, or leaves, ends its ask and hears nothing more", async () => {
  const rig = await railRig({ servers: files(), rules: rule("a", 'event.type == "mcp.tool_call"', "ask") });
  const client = rig.client();
  const begun = client.begin("tools/call", { name: "files__read" }, "x");
  await expect.poll(() => rig.service.asks.length).toBe(1);
  await client.notify("notifications/cancelled", { requestId: "x" });
  await begun;
  const other = rig.client();
  const left = other.begin("tools/call", { name: "files__read" });
  await expect.poll(() => rig.service.asks.length).toBe(2);
  other.leave();
  await left;
  await expect.poll(() => rig.service.asks.map(({ signal }) => signal.aborted)).toEqual([true, true]);
  expect([...client.texts, ...other.texts]).toEqual([]);
  await rig.settled();
  expect(rig.service.calls.map(({ outcome }) => outcome)).toEqual(["cancelled", "cancelled"]);
  expect(rig.aggregator.requests).toEqual([]);
});

test.each<string | number>([0, "", 9_007_199_254_740_991, -5, 'a"b'])(
  "a call with the id %j is answered, and cancelled at its server",
  async (id) => {
    let aborted = 0;
    const rig = await railRig({
      servers: files({
        serve: async ({ params, signal }) => {
          if (!params.includes("wait")) return said("now");
          await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
          aborted += 1;
          return said("late");
        },
      }),
    });
    const client = rig.client();
    expect((await client.request("tools/call", { name: "files__read" }, id)).id).toBe(id);
    const before = client.texts.length;
    const begun = client.begin("tools/call", { name: "files__read", arguments: { wait: 1 } }, id);
    await expect.poll(() => rig.aggregator.open).toBe(1);
    await client.notify("notifications/cancelled", { requestId: id, reason: "enough" });
    await begun;
    await expect.poll(() => aborted).toBe(1);
    expect(client.texts.slice(before)).toEqual([]);
    await rig.settled();
    expect(rig.service.calls.map(({ outcome }) => outcome)).toEqual(["done", "cancelled"]);
  },
);

test("two clients with the same ids have each their own answers, and one cannot cancel for the other", async () => {
  const rig = await railRig({
    servers: files({
      serve: async ({ params, signal }) => {
        await new Promise((resolve) => setTimeout(resolve, 20));
        return said(signal.aborted ? "aborted" : params);
      },
    }),
  });
  const [one, other] = [rig.client(), rig.client()];
  const answers = [
    one.request("tools/call", { name: "files__read", arguments: { who: "one" } }, 1),
    other.request("tools/call", { name: "files__read", arguments: { who: "other" } }, 1),
  ];
  await one.notify("notifications/cancelled", { requestId: 99 });
  const [first, second] = await Promise.all(answers);
  expect(textOf(first as Message)).toContain('"one"');
  expect(textOf(second as Message)).toContain('"other"');
  const again = other.request("tools/call", { name: "files__read", arguments: { who: "other" } }, 2);
  await one.notify("notifications/cancelled", { requestId: 2 });
  expect(textOf(await again)).toContain('"other"');
});

test("an id that is not answered yet is not taken twice", async () => {
  const rig = await railRig({ servers: files({ serve: never }) });
  const client = rig.client();
  void client.begin("tools/call", { name: "files__read" }, 1);
  await expect.poll(() => rig.aggregator.open).toBe(1);
  await client.begin("tools/call", { name: "files__read" }, 1);
  expect(client.messages).toMatchObject([{ id: 1, error: { code: -32_600 } }]);
  expect(rig.aggregator.requests).toHaveLength(1);
});

test("without credit, or while the service refuses, a call is refused before it is dispatched", async () => {
  const rig = await railRig({ servers: files(), credit: { facts: 3, bytes: 1e6 } });
  const client = rig.client();
  expect((await client.call("files__read")).error).toBeUndefined();
  await rig.settled();
  const { error } = await client.call("files__read");
  expect(error).toMatchObject({ code: -32_603, message: expect.stringContaining("ledger") });
  expect(rig.aggregator.requests).toHaveLength(1);
  // The end of the first one was sent beyond the credit.
  expect(rig.service.calls).toHaveLength(1);
  await rig.credit(100, 1e6);
  expect((await client.call("files__read")).error).toBeUndefined();
  await rig.credit(100, 1e6, { kind: "ledger_full", message: "Cannot record the act: the ledger is full" });
  expect((await client.call("files__read")).error?.message).toBe("Cannot record the act: the ledger is full");
  await rig.credit(0, 0);
  expect((await client.call("files__read")).error).toBeUndefined();
});

test("the process of tool servers dies: what it did fails once and at once, and the next call has a new one", async () => {
  const rig = await railRig({
    servers: files({ serve: async ({ params }) => (params.includes("wait") ? never() : said("ok")) }),
  });
  const client = rig.client();
  const calls = [1, 2, 3].map((count) => client.call("files__read", { wait: count }));
  await expect.poll(() => rig.aggregator.open).toBe(3);
  const killed = performance.now();
  rig.aggregator.kill();
  for (const { error } of await Promise.all(calls)) {
    expect(error).toMatchObject({ code: -32_603, message: expect.stringContaining("process was lost") });
  }
  expect(performance.now() - killed).toBeLessThan(1_000);
  expect(textOf(await client.call("files__read"))).toBe("ok");
  expect(performance.now() - killed).toBeLessThan(2_000);
  expect(rig.service.needs).toEqual(["aggregator", "aggregator"]);
  expect(rig.aggregator.sets.at(-1)?.servers.map(({ name }) => name)).toEqual(["files"]);
  await rig.settled();
  expect(rig.service.calls.map(({ outcome }) => outcome)).toEqual(["failed", "failed", "failed", "done"]);
});

test("a call of a tool, or a server, that is not there is no call; a rule that blocks it refuses it all the same", async () => {
  const rig = await railRig({ servers: files(), rules: rule("no", 'mcp.tool_call.name == "hidden"') });
  const client = rig.client();
  for (const name of ["files__none", "other__read", "read", "__read", "files__"]) {
    expect((await client.call(name)).error?.code, name).toBe(-32_602);
  }
  expect((await client.call("files__hidden")).error).toMatchObject({
    ...{ code: -32_600, data: { rule_id: "profiles.rules.no" } },
  });
  await rig.settled();
  expect(rig.service.calls.map(({ outcome }) => outcome)).toEqual([
    ...Array.from({ length: 5 }, () => "failed"),
    "blocked",
  ]);
  expect(rig.aggregator.requests).toEqual([]);
});

test("a call that its server does not answer in time has the code of a timeout, and a server's sign of life helps", async () => {
  const quick = tool("read", { _meta: { "dev.capsem/timeout_ms": 150 } });
  const aborted: string[] = [];
  const rig = await railRig({
    servers: {
      files: {
        tools: [quick],
        serve: async ({ params, notify, signal }) => {
          signal.addEventListener("abort", () => aborted.push(params));
          if (params.includes("silent")) return never();
          for (let step = 0; step < 6; step += 1) {
            await new Promise((resolve) => setTimeout(resolve, 60));
            await notify("notifications/progress", { progressToken: 5, progress: step });
          }
          return said("slow");
        },
      },
    },
  });
  const client = rig.client();
  expect((await client.call("files__read", { silent: 1 })).error?.code).toBe(-32_000);
  await expect.poll(() => aborted.length).toBe(1);
  const answer = await client.call("files__read", {}, { _meta: { progressToken: 5 } });
  expect(textOf(answer)).toBe("slow");
  expect(client.of("notifications/progress").map(({ params }) => params?.progress)).toEqual([
    0, 1, 2, 3, 4, 5,
  ]);
  await rig.settled();
  expect(rig.service.calls).toMatchObject([
    { outcome: "failed", error: expect.stringContaining("timeout") },
    { outcome: "done" },
  ]);
});

test("more calls than there are places wait, and each client has its turn", async () => {
  const order: string[] = [];
  const gates: (() => void)[] = [];
  const rig = await railRig({
    cores: 1,
    servers: files({
      serve: async ({ params }) => {
        order.push((JSON.parse(params) as { arguments: { who: string } }).arguments.who);
        await new Promise<void>((resolve) => gates.push(resolve));
        return said("done");
      },
    }),
  });
  const [greedy, modest] = [rig.client(), rig.client()];
  await greedy.request("tools/list");
  const all = Array.from({ length: 12 }, () => greedy.call("files__read", { who: "greedy" }));
  await expect.poll(() => order.length).toBe(4);
  all.push(modest.call("files__read", { who: "modest" }));
  while (order.length < 13) {
    const count = order.length;
    gates.shift()?.();
    await expect.poll(() => order.length).toBeGreaterThanOrEqual(Math.min(count + 1, 13));
    if (order.length === 13) break;
  }
  for (const open of gates) open();
  await Promise.all(all);
  expect(order.indexOf("modest")).toBeLessThan(7);
  await rig.settled();
  expect(rig.service.calls).toHaveLength(13);
});

test("what a session has read from outside is in the label of what it sends later; another one is clean", async () => {
  const rig = await railRig({
    servers: { files: { tools: [tool("read")] }, mail: { tools: [tool("send")] } },
    local: { tools: [tool("echo", { annotations: { openWorldHint: false } }), tool("fetch")] },
    rules: rule(
      "tainted",
      'mcp.tool_call.name == "send" && event.type == "mcp.tool_call" && tainted(label, "untrusted")',
    ),
  });
  const [client, other] = [rig.client(), rig.client()];
  await client.call("local__echo");
  expect((await client.call("mail__send")).error).toBeUndefined();
  // Its own answer has come from outside.
  expect((await client.call("mail__send")).error?.data?.rule_id).toBe("profiles.rules.tainted");
  await other.call("local__fetch");
  expect((await other.call("mail__send")).error?.data?.rule_id).toBe("profiles.rules.tainted");
  await rig.settled();
  const labels = rig.service.calls.map(({ call }) => [call.tool_name, call.label_in, call.label_out]);
  const outside = (source: string) =>
    `{"confidentiality":"public","integrity":"untrusted","sources":["${source}"]}`;
  const clean = '{"confidentiality":"public","integrity":"trusted","sources":[]}';
  expect(labels).toEqual([
    ["echo", clean, clean],
    ["send", clean, outside("mcp:mail")],
    ["send", outside("mcp:mail"), null],
    ["fetch", clean, outside("mcp:local")],
    ["send", outside("mcp:local"), null],
  ]);
});

test("payloads that no event holds are kept whole beside it; a rule that would have to read one refuses it", async () => {
  const deep = JSON.parse(`${'{"a":'.repeat(30)}1${"}".repeat(30)}`) as Record<string, unknown>;
  const large = "x".repeat(200_000);
  const rig = await railRig({ servers: files({ serve: async () => said(large) }) });
  const client = rig.client();
  expect((await client.call("files__read", deep)).error).toBeUndefined();
  await rig.settled();
  const [call] = rig.service.calls;
  expect(call?.bodies?.request).toEqual({ text: JSON.stringify(deep), bytes: JSON.stringify(deep).length });
  expect(call?.bodies?.response?.bytes).toBeGreaterThan(200_000);
  expect(call?.bodies?.response?.text).toContain(large);
  expect(rig.service.decisionsOf("mcp.tool_call")[0]?.event).toMatchObject({
    fields: { "mcp.truncated": true },
  });
  await rig.rules(rule("reads", 'mcp.request.arguments.path == "x"'));
  expect((await client.call("files__read", deep)).error?.message).toContain("too deep");
});
