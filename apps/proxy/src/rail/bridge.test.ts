import { expect, test } from "vitest";
import { type RailRig, railRig } from "../testing/rail-rig.ts";
import { type ScriptedServer, type Serve, said, tool } from "../testing/scripted-servers.ts";
import { type Message, MODERN, type TestClient } from "../testing/test-client.ts";

const textOf = ({ result }: Message) => (result?.content as { text: string }[] | undefined)?.[0]?.text;
const accepted = { action: "accept", content: { city: "Bern" } };
const question = {
  mode: "form",
  message: "Which city?",
  requestedSchema: { type: "object", properties: {} },
};

/** Of the older protocol: it asks in the course of the call. */
const asksBySelf: Serve = async ({ ask }) => {
  const { result, error } = await ask("elicitation/create", question);
  return said(JSON.stringify(result ?? error));
};
/** Of the newer one: its answer is the question. */
const asksByAnswer: Serve = async ({ params }) => {
  const { inputResponses, requestState } = JSON.parse(params) as {
    inputResponses?: Record<string, unknown>;
    requestState?: string;
  };
  if (inputResponses !== undefined) return said(JSON.stringify({ inputResponses, requestState }));
  const inputRequests = { where: { method: "elicitation/create", params: question } };
  return { result: { resultType: "input_required", inputRequests, requestState: "server's own" } };
};
const older: ScriptedServer = { era: "legacy", tools: [tool("ask")], serve: asksBySelf };
const newer: ScriptedServer = { era: "modern", tools: [tool("ask")], serve: asksByAnswer };
const able = { elicitation: {}, sampling: {}, roots: {} };

/** A client of the newer protocol, which comes back with its answers. */
async function withAnswers(client: TestClient, name: string, response: unknown): Promise<Message> {
  const first = await client.call(name, { a: 1 }, { _meta: MODERN });
  if (first.result?.resultType !== "input_required") return first;
  const requests = first.result.inputRequests as Record<string, unknown>;
  const inputResponses = Object.fromEntries(Object.keys(requests).map((key) => [key, response]));
  const { requestState } = first.result;
  return client.call(name, { a: 1 }, { _meta: MODERN, inputResponses, requestState });
}

async function endsOf(rig: RailRig): Promise<string[]> {
  await rig.settled();
  return rig.service.calls.map(({ outcome }) => outcome);
}

test("older client, older server: asked in the course of the call, under an id of ours", async () => {
  const rig = await railRig({ servers: { s: older } });
  const client = rig.client({ answer: () => ({ result: accepted }) });
  await client.initialize(able);
  expect(textOf(await client.call("s__ask"))).toBe(JSON.stringify(accepted));
  expect(client.of("elicitation/create")).toMatchObject([{ params: question }]);
  expect(rig.aggregator.requests[0]?.client).toEqual({ sampling: true, elicitation: true, roots: true });
  expect(await endsOf(rig)).toEqual(["done"]);
});

test("newer client, older server: the call is held there until the client comes back, and has one end", async () => {
  const rig = await railRig({ servers: { s: older } });
  const client = rig.client();
  const first = await client.call("s__ask", { a: 1 }, { _meta: MODERN });
  expect(first.result).toMatchObject({
    resultType: "input_required",
    inputRequests: { input_1: { method: "elicitation/create", params: question } },
  });
  expect(await endsOf(rig)).toEqual([]);
  const { requestState } = first.result ?? {};
  const inputResponses = { input_1: accepted };
  const answer = await client.call("s__ask", { a: 1 }, { _meta: MODERN, inputResponses, requestState });
  expect(textOf(answer)).toBe(JSON.stringify(accepted));
  expect(answer.result?.resultType).toBe("complete");
  expect(rig.aggregator.requests).toHaveLength(1);
  expect(await endsOf(rig)).toEqual(["done"]);
  const again = await client.call("s__ask", { a: 1 }, { _meta: MODERN, inputResponses, requestState });
  expect(again.error?.code).toBe(-32_602);
});

test("a held call goes on for its own client, with its own arguments, alone", async () => {
  const rig = await railRig({ servers: { s: { ...older, tools: [tool("ask"), tool("other")] } } });
  const client = rig.client();
  const first = await client.call("s__ask", { a: 1 }, { _meta: MODERN });
  const { requestState } = first.result ?? {};
  const more = { _meta: MODERN, inputResponses: { input_1: accepted }, requestState };
  expect((await rig.client().call("s__ask", { a: 1 }, more)).error?.code).toBe(-32_602);
  expect((await client.call("s__ask", { a: 2 }, more)).error?.code).toBe(-32_602);
  expect((await client.call("s__other", { a: 1 }, more)).error?.code).toBe(-32_602);
  const invented = { ...more, requestState: "capsem:invented" };
  expect((await client.call("s__ask", { a: 1 }, invented)).error?.code).toBe(-32_602);
  expect(textOf(await client.call("s__ask", { a: 1 }, more))).toBe(JSON.stringify(accepted));
});

test("held calls take no place", async () => {
  const rig = await railRig({ servers: { s: older, t: { tools: [tool("read")] } }, cores: 1 });
  const client = rig.client();
  for (let count = 0; count < 12; count += 1) await client.call("s__ask", { count }, { _meta: MODERN });
  expect((await client.call("t__read")).error).toBeUndefined();
  expect(rig.aggregator.open).toBe(12);
});

test("older client, newer server: the client is asked, and the server called again with what it says", async () => {
  const rig = await railRig({ servers: { s: newer } });
  const client = rig.client({ answer: () => ({ result: accepted }) });
  await client.initialize(able);
  const answer = JSON.parse(textOf(await client.call("s__ask", { a: 1 })) ?? "");
  expect(answer).toEqual({ inputResponses: { where: accepted }, requestState: "server's own" });
  expect(rig.aggregator.requests).toHaveLength(2);
  expect(JSON.parse(rig.aggregator.requests[1]?.params ?? "")).toMatchObject({
    name: "ask",
    arguments: { a: 1 },
  });
  expect(await endsOf(rig)).toEqual(["done"]);
});

test("newer client, newer server: question and state pass as they are, and each leg is a call", async () => {
  const rig = await railRig({ servers: { s: newer } });
  const client = rig.client();
  const answer = JSON.parse(textOf(await withAnswers(client, "s__ask", accepted)) ?? "");
  expect(answer).toEqual({ inputResponses: { where: accepted }, requestState: "server's own" });
  expect(await endsOf(rig)).toEqual(["done", "done"]);
});

test("a client that cannot be asked is not asked, and its server hears so", async () => {
  const rig = await railRig({ servers: { s: older, n: newer } });
  const client = rig.client({ answer: () => ({ result: accepted }) });
  await client.initialize({});
  expect(textOf(await client.call("s__ask"))).toContain('"code":-32601');
  expect((await client.call("n__ask")).error?.code).toBe(-32_603);
  expect(client.of("elicitation/create")).toEqual([]);
  // It says that it can, and there is no way to it.
  const lone = rig.client({ transport: "http" });
  await lone.initialize(able);
  expect(textOf(await lone.call("s__ask"))).toContain('"code":-32601');
});

test("a rule on what a server asks, or a client answers, is in force on both eras", async () => {
  const rules = (match: string) => `[profiles.rules.no]\naction = "block"\nmatch = '''${match}'''\n`;
  const rig = await railRig({ servers: { s: older, n: newer } });
  const client = rig.client({ answer: () => ({ result: accepted }) });
  await client.initialize(able);
  for (const match of [
    'mcp.method == "elicitation/create"',
    'mcp.request.arguments.message.contains("city")',
    'mcp.request.method == "elicitation/create" && mcp.response.content.contains("Bern")',
  ]) {
    await rig.rules(rules(match));
    expect(textOf(await client.call("s__ask")), match).toContain("blocked by profiles.rules.no");
    expect((await client.call("n__ask")).error?.data?.rule_id, match).toBe("profiles.rules.no");
  }
  await rig.rules("");
  expect(textOf(await client.call("s__ask"))).toBe(JSON.stringify(accepted));
});

test("a client that cancels while it is asked hears that the question is over", async () => {
  const rig = await railRig({ servers: { s: older } });
  const client = rig.client({ answer: () => new Promise(() => undefined) });
  await client.initialize(able);
  const begun = client.begin("tools/call", { name: "s__ask" }, "c");
  await expect.poll(() => client.of("elicitation/create").length).toBe(1);
  await client.notify("notifications/cancelled", { requestId: "c" });
  await begun;
  await expect.poll(() => client.of("notifications/cancelled").length).toBe(1);
  expect(client.of("notifications/cancelled")[0]?.params?.requestId).toBe(
    client.of("elicitation/create")[0]?.id,
  );
  expect(await endsOf(rig)).toEqual(["cancelled"]);
});

test("a server that never stops asking is cut", async () => {
  const serve: Serve = async () => ({
    result: { resultType: "input_required", inputRequests: { a: { method: "roots/list" } } },
  });
  const rig = await railRig({ servers: { s: { ...newer, serve } } });
  const client = rig.client({ answer: () => ({ result: { roots: [] } }) });
  await client.initialize(able);
  expect((await client.call("s__ask")).error?.message).toContain("more than 16 times");
});

test("progress goes to the caller of the moment, under its own token", async () => {
  const serve: Serve = async ({ ask, notify }) => {
    await notify("notifications/progress", { progressToken: "one", progress: 1 });
    await ask("roots/list", {});
    await notify("notifications/progress", { progressToken: "one", progress: 2 });
    return said("done");
  };
  const rig = await railRig({ servers: { s: { ...older, serve } } });
  const client = rig.client();
  const meta = (progressToken: string) => ({ _meta: { ...MODERN, progressToken } });
  const first = await client.call("s__ask", {}, meta("one"));
  const more = { inputResponses: { input_1: { roots: [] } }, requestState: first.result?.requestState };
  await client.call("s__ask", {}, { ...meta("two"), ...more });
  expect(client.of("notifications/progress").map(({ params }) => params)).toEqual([
    { progressToken: "one", progress: 1 },
    { progressToken: "two", progress: 2 },
  ]);
});
