// What a client says of its own accord: progress with what it was asked, other roots, the level of logs it wants.
import { expect, test } from "vitest";
import { PROXY_LIMITS } from "../limits.ts";
import { railRig } from "../testing/rail-rig.ts";
import {
  type ScriptedServer,
  type Serve,
  type ServedRequest,
  said,
  tool,
} from "../testing/scripted-servers.ts";
import { type Message, MODERN } from "../testing/test-client.ts";

const textOf = ({ result }: Message) => (result?.content as { text: string }[] | undefined)?.[0]?.text;
const able = { elicitation: {}, sampling: {}, roots: {} };
const rule = (match: string) => `[profiles.rules.no]\naction = "block"\nmatch = '''${match}'''\n`;
const question = { messages: [], maxTokens: 1, _meta: { progressToken: "theirs", keep: 1 } };

/** A server that asks for a sample, and what it hears meanwhile. */
function sampler(params: unknown = question) {
  const served: ServedRequest[] = [];
  const serve: Serve = async (request) => {
    served.push(request);
    return said(JSON.stringify((await request.ask("sampling/createMessage", params)).result ?? null));
  };
  return { served, server: { era: "legacy", tools: [tool("ask")], serve } satisfies ScriptedServer };
}

/** A client that is asked, and answers when it is told to. */
function held() {
  const asked: { params: { maxTokens?: unknown; _meta?: { progressToken?: unknown } }; answer(): void }[] =
    [];
  const answer = (_method: string, params: unknown) =>
    new Promise<Record<string, unknown>>((resolve) => {
      asked.push({ params: params as never, answer: () => resolve({ result: { ok: true } }) });
    });
  return { asked, answer };
}

test("a client's progress with what it is asked goes to the server that asked, under that one's token", async () => {
  const [one, two] = [sampler(), sampler({ ...question, maxTokens: 2 })];
  const rig = await railRig({ servers: { one: one.server, two: two.server } });
  const { asked, answer } = held();
  const client = rig.client({ answer });
  await client.initialize(able);
  const calls = [client.call("one__ask"), client.call("two__ask")];
  await expect.poll(() => asked.length).toBe(2);
  // Both servers call it the same, and the client can tell them apart.
  const tokens = new Map(asked.map(({ params }) => [params.maxTokens, params._meta?.progressToken]));
  expect(new Set(tokens.values()).size).toBe(2);
  expect(asked[0]?.params._meta).toMatchObject({ keep: 1 });
  const progress = (progressToken: unknown, at: number) =>
    client.notify("notifications/progress", { progressToken, progress: at, total: 2, message: "on it" });
  await progress(tokens.get(1), 1);
  await progress(tokens.get(2), 2);
  await progress("theirs", 3);
  await progress(99, 4);
  const heard = (at: number) => ({
    ...{ jsonrpc: "2.0", method: "notifications/progress" },
    params: { progressToken: "theirs", progress: at, total: 2, message: "on it" },
  });
  await expect.poll(() => [one.served[0]?.told, two.served[0]?.told]).toEqual([[heard(1)], [heard(2)]]);
  for (const each of asked) each.answer();
  expect((await Promise.all(calls)).map(textOf)).toEqual(['{"ok":true}', '{"ok":true}']);
  // Behind the answer there is nothing that it could be about.
  await progress(tokens.get(1), 5);
  expect(one.served[0]?.told).toHaveLength(1);
});

test("a server that asked for no progress hears of none, nor of what is too long, too much, or ambiguous", async () => {
  const [quiet, wants] = [sampler({ messages: [], maxTokens: 1 }), sampler()];
  const rig = await railRig({ servers: { quiet: quiet.server, wants: wants.server } });
  const { asked, answer } = held();
  const client = rig.client({ answer });
  await client.initialize(able);
  const calls = [client.call("quiet__ask"), client.call("wants__ask")];
  await expect.poll(() => asked.length).toBe(2);
  const token = client
    .of("sampling/createMessage")
    .map(({ params }) => (params?._meta as { progressToken?: number } | undefined)?.progressToken)
    .find((each) => each !== undefined);
  for (const other of [1, 2].filter((each) => each !== token)) {
    await client.notify("notifications/progress", { progressToken: other, progress: 1 });
  }
  const long = "x".repeat(PROXY_LIMITS.progressCharsMax);
  await client.notify("notifications/progress", { progressToken: token, progress: 1, message: long });
  await client.receive(
    `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":1,"progress":2}}`,
  );
  for (let at = 0; at < PROXY_LIMITS.progressOfAskMax + 50; at += 1) {
    await client.notify("notifications/progress", { progressToken: token, progress: at });
  }
  for (const each of asked) each.answer();
  await Promise.all(calls);
  expect(quiet.served[0]?.told).toEqual([]);
  const heard = wants.served[0]?.told.map(({ params }) => (params as { progress: number }).progress) ?? [];
  expect(heard.length).toBeGreaterThan(0);
  expect(Math.max(...heard)).toBeLessThan(PROXY_LIMITS.progressOfAskMax);
  expect(heard).toEqual([...heard].sort((a, b) => a - b));
});

test("a rule keeps a client's progress from its server, and the answer passes", async () => {
  const { served, server } = sampler();
  const rig = await railRig({ servers: { s: server } });
  const { asked, answer } = held();
  const client = rig.client({ answer });
  await client.initialize(able);
  const said = async () => {
    const at = asked.length;
    const call = client.call("s__ask");
    await expect.poll(() => asked.length).toBe(at + 1);
    const progressToken = asked[at]?.params._meta?.progressToken;
    await client.notify("notifications/progress", { progressToken, progress: 1, message: "the canary" });
    asked[at]?.answer();
    expect(textOf(await call)).toBe('{"ok":true}');
    return served[at]?.told.length;
  };
  expect(await said()).toBe(1);
  for (const match of [
    'mcp.method == "notifications/progress"',
    'mcp.request.arguments.message.contains("canary")',
  ]) {
    await rig.rules(rule(match));
    expect([match, await said()]).toEqual([match, 0]);
  }
});

test("other roots are told to a server of the older protocol that has asked for them, which may ask again", async () => {
  const heard: string[] = [];
  const serve: Serve = async ({ server, method, ask }) => {
    heard.push(`${server} ${method}`);
    if (server === "deaf") return said("nothing");
    const { result } = await ask("roots/list", {});
    heard.push(`${server} ${JSON.stringify(result)}`);
    return method === "tools/call" ? said("done") : { result: {} };
  };
  const server: ScriptedServer = { era: "legacy", tools: [tool("ask")], serve };
  const newer: Serve = async ({ params }) => {
    if (JSON.parse(params).inputResponses !== undefined) return said("done");
    return { result: { resultType: "input_required", inputRequests: { r: { method: "roots/list" } } } };
  };
  const rig = await railRig({
    servers: { s: server, deaf: server, n: { era: "modern", tools: [tool("ask")], serve: newer } },
  });
  let root = "file:///one";
  const client = rig.client({ answer: () => ({ result: { roots: [{ uri: root }] } }) });
  const other = rig.client({ answer: () => ({ result: { roots: [{ uri: "file:///other" }] } }) });
  for (const each of [client, other]) await each.initialize(able);
  for (const name of ["s__ask", "deaf__ask", "n__ask"]) await client.call(name);
  heard.length = 0;
  root = "file:///two";
  await other.notify("notifications/roots/list_changed");
  await client.notify("notifications/roots/list_changed");
  await expect.poll(() => heard).toHaveLength(2);
  expect(heard).toEqual(["s notifications/roots/list_changed", 's {"roots":[{"uri":"file:///two"}]}']);
  await rig.settled();
  expect(rig.aggregator.requests.filter(({ method }) => method.startsWith("notifications/"))).toHaveLength(1);
});

test("a rule keeps the news of other roots from a server; a client that is gone has none, and many are told as few", async () => {
  let told = 0;
  let goOn: () => void = () => undefined;
  const serve: Serve = async ({ method, ask, signal }) => {
    if (method === "tools/call") await ask("roots/list", {});
    else {
      told += 1;
      await new Promise<void>((resolve) => {
        goOn = resolve;
        signal.addEventListener("abort", () => resolve());
      });
    }
    return said("done");
  };
  const rig = await railRig({ servers: { s: { era: "legacy", tools: [tool("ask")], serve } } });
  const client = rig.client({ answer: () => ({ result: { roots: [] } }) });
  await client.initialize(able);
  await client.call("s__ask");
  await rig.rules(rule('mcp.method == "notifications/roots/list_changed"'));
  await client.notify("notifications/roots/list_changed");
  await rig.settled();
  expect(told).toBe(0);
  await rig.rules("");
  for (let count = 0; count < 20; count += 1) await client.notify("notifications/roots/list_changed");
  await expect.poll(() => told).toBe(1);
  goOn();
  await expect.poll(() => told).toBe(2);
  client.leave();
  await expect.poll(() => rig.aggregator.open).toBe(0);
  expect(told).toBe(2);
});

test("the level of logs that an older client has set is said to a server of the newer protocol, in each request", async () => {
  const sent = async (rig: Awaited<ReturnType<typeof railRig>>) => {
    await rig.settled();
    return rig.aggregator.requests.map(({ params }) => JSON.parse(params)._meta ?? null);
  };
  const serve: Serve = async ({ method }) =>
    method === "prompts/get" ? { result: { messages: [] } } : said("done");
  const things = { tools: [tool("do")], prompts: [{ name: "p" }], serve };
  const rig = await railRig({
    servers: { n: { era: "modern", ...things }, o: { era: "legacy", ...things } },
  });
  const older = rig.client();
  await older.initialize();
  await older.call("n__do");
  await older.request("logging/setLevel", { level: "warning" });
  await older.call("n__do", {}, { _meta: { keep: 1 } });
  await older.request("prompts/get", { name: "n__p" });
  await older.call("o__do");
  const newer = rig.client();
  await newer.call("n__do", {}, { _meta: { ...MODERN, "io.modelcontextprotocol/logLevel": "debug" } });
  const level = (name: string) => ({ "io.modelcontextprotocol/logLevel": name });
  expect(await sent(rig)).toEqual([
    null,
    { keep: 1, ...level("warning") },
    level("warning"),
    null,
    level("debug"),
  ]);
});
