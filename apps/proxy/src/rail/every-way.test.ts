import { expect, test } from "vitest";
import { type RailRig, railRig } from "../testing/rail-rig.ts";
import { type ScriptedServer, said, tool } from "../testing/scripted-servers.ts";
import type { Message, TestClient } from "../testing/test-client.ts";

/** Each way to each thing. A refusal has the rule's name; what is not listed is refused as well. */
const WAYS = {
  "list tool": (guest: Guest) => guest.lists("tools/list", "tools", "name", "files__read"),
  "call tool": (guest: Guest) => guest.request("tools/call", { name: "files__read" }),
  "call tool from host": (guest: Guest) => guest.hostCall(),
  "list resource": (guest: Guest) =>
    guest.lists("resources/list", "resources", "uri", "capsem://files/demo://a"),
  "read resource": (guest: Guest) => guest.request("resources/read", { uri: "capsem://files/demo://a" }),
  "read resource by its own name": (guest: Guest) => guest.request("resources/read", { uri: "demo://a" }),
  "subscribe to resource": (guest: Guest) =>
    guest.request("resources/subscribe", { uri: "capsem://files/demo://a" }),
  "list template": (guest: Guest) =>
    guest.lists(
      "resources/templates/list",
      "resourceTemplates",
      "uriTemplate",
      "capsem://files/demo://t/{id}",
    ),
  "complete template": (guest: Guest) =>
    guest.complete({ type: "ref/resource", uri: "capsem://files/demo://t/{id}" }),
  "read what template gives": (guest: Guest) =>
    guest.request("resources/read", { uri: "capsem://files/demo://t/1" }),
  "list prompt": (guest: Guest) => guest.lists("prompts/list", "prompts", "name", "files__greet"),
  "get prompt": (guest: Guest) =>
    guest.request("prompts/get", { name: "files__greet", arguments: { a: "1" } }),
  "complete prompt": (guest: Guest) => guest.complete({ type: "ref/prompt", name: "files__greet" }),
} as const;
type Way = keyof typeof WAYS;
const ALL = Object.keys(WAYS) as Way[];
const TOOL: Way[] = ["list tool", "call tool", "call tool from host"];
const RESOURCE: Way[] = [
  "list resource",
  "read resource",
  "read resource by its own name",
  "subscribe to resource",
];
const TEMPLATE: Way[] = ["list template", "complete template", "read what template gives"];
const PROMPT: Way[] = ["list prompt", "get prompt", "complete prompt"];
const GUEST_ONLY = ALL.filter((way) => way !== "call tool from host");

/** A rule, and the ways that it closes. */
const RULES: readonly (readonly [match: string, closed: readonly Way[]])[] = [
  ['mcp.tool_call.name == "read"', TOOL],
  ['event.type == "mcp.tool_call" && mcp.server.name == "files"', TOOL],
  ['event.type == "mcp.tool_list" && mcp.server.name == "files"', TOOL],
  ['mcp.method == "tools/call"', TOOL],
  ['mcp.tool_call.name == "read" && mcp.request.arguments.path == "/etc"', []],
  ['mcp.request.uri == "demo://a"', RESOURCE],
  ['mcp.method == "resources/read" && mcp.request.uri == "demo://a"', RESOURCE],
  ['mcp.method == "resources/read"', [...RESOURCE, ...TEMPLATE]],
  ['mcp.method == "resources/list"', [...RESOURCE, "read what template gives"]],
  ['mcp.method == "resources/subscribe"', ["subscribe to resource"]],
  ['mcp.request.uri.startsWith("demo://t")', TEMPLATE],
  ['mcp.method == "resources/templates/list"', ["list template", "complete template"]],
  ['mcp.request.prompt == "greet"', PROMPT],
  ['mcp.method == "prompts/get" && mcp.request.prompt == "greet"', PROMPT],
  ['mcp.method == "prompts/list"', PROMPT],
  ['mcp.request.prompt == "greet" && mcp.request.arguments.a == "2"', []],
  ['mcp.method == "completion/complete"', ["complete template", "complete prompt"]],
  ['mcp.server.name == "files"', ALL],
  ["has(mcp.server.external) && mcp.server.external", ALL],
  ['mcp.server.name == "other"', []],
  ['mcp.transport != "direct"', GUEST_ONLY],
  ['process.name == "agent"', GUEST_ONLY],
  ['mcp.transport == "direct"', ["call tool from host"]],
];

const NAME = "profiles.rules.gate";
const gate = (match: string) => `[profiles.rules.gate]\naction = "block"\nmatch = '''${match}'''\n`;

class Guest {
  readonly #rig: RailRig;
  readonly #client: TestClient;

  constructor(rig: RailRig, client: TestClient) {
    this.#rig = rig;
    this.#client = client;
  }

  async request(method: string, params: unknown): Promise<boolean> {
    return isOpen(await this.#client.request(method, params));
  }

  complete(ref: unknown): Promise<boolean> {
    return this.request("completion/complete", { ref, argument: { name: "a", value: "x" } });
  }

  async lists(method: string, member: string, field: string, value: string): Promise<boolean> {
    const { result, error } = await this.#client.request(method);
    if (error !== undefined) return isOpen({ error });
    const items = result?.[member] as Record<string, unknown>[];
    return items.some((item) => item[field] === value);
  }

  async hostCall(): Promise<boolean> {
    const who = { requester: "cli", client: null, token_id: null, trace_id: null, turn_id: null };
    const params = { server: "files", tool: "read", arguments: "{}", ...who };
    try {
      const { result } = (await this.#rig.service.call("tool.call", params)) as { result: string };
      expect(JSON.parse(result)).toHaveProperty("content");
      return true;
    } catch (thrown) {
      expect(thrown).toMatchObject({ kind: "policy", message: expect.stringContaining(NAME) });
      return false;
    }
  }
}

function isOpen({ error }: Message): boolean {
  if (error === undefined) return true;
  expect(error).toMatchObject({ code: -32_600, data: { rule_id: NAME } });
  return false;
}

const SERVER: ScriptedServer = {
  tools: [tool("read")],
  resources: [{ uri: "demo://a", name: "a" }],
  templates: [{ uriTemplate: "demo://t/{id}", name: "t" }],
  prompts: [{ name: "greet" }],
  serve: async ({ method }) => {
    if (method === "resources/read") return { result: { contents: [{ uri: "demo://a", text: "x" }] } };
    if (method === "prompts/get") return { result: { messages: [] } };
    if (method === "completion/complete") return { result: { completion: { values: ["xy"] } } };
    return method === "tools/call" ? said("x") : { result: {} };
  },
};

async function waysOf(rig: RailRig, client: TestClient): Promise<Way[]> {
  const guest = new Guest(rig, client);
  const open: Way[] = [];
  for (const way of ALL) if (await WAYS[way](guest)) open.push(way);
  return open;
}

test.each(["framed", "http"] as const)(
  "what a rule closes is closed on every way over %s",
  async (transport) => {
    const rig = await railRig({ servers: { files: SERVER } });
    const client = rig.client({ transport });
    await client.initialize();
    expect(await waysOf(rig, client)).toEqual(ALL);
    for (const [match, closed] of RULES) {
      await rig.rules(gate(match));
      await rig.settled();
      const before = rig.aggregator.requests.length;
      const known = rig.service.decisions.length;
      const open = await waysOf(rig, client);
      expect(open, match).toEqual(ALL.filter((way) => !closed.includes(way)));
      // What is refused never reached its server, and every refusal is one in the records.
      const reached = open.filter((way) => !way.startsWith("list"));
      expect(rig.aggregator.requests.length - before, match).toBe(reached.length);
      await rig.settled();
      const refused = rig.service.decisions.slice(known).filter(({ decision }) => decision.rule_id === NAME);
      const asked = closed.filter((way) => !way.startsWith("list"));
      expect(refused.length, match).toBeGreaterThanOrEqual(asked.length);
      expect(
        refused.every(({ decision }) => decision.action === "block"),
        match,
      ).toBe(true);
    }
  },
);

test("two askers whom a rule tells apart have each their own list", async () => {
  const rig = await railRig({ servers: { files: SERVER }, rules: gate('process.name == "curl"') });
  const [agent, curl] = [rig.client(), rig.client({ processName: "curl" })];
  const namesOf = async (client: TestClient) => {
    const { result } = await client.request("tools/list");
    return ((result?.tools ?? []) as { name: string }[]).map(({ name }) => name);
  };
  expect(await namesOf(agent)).toEqual(["files__read"]);
  expect(await namesOf(curl)).toEqual([]);
  expect(await namesOf(agent)).toEqual(["files__read"]);
});

test("a list is judged once, however often it is asked for, and again after new rules or another catalogue", async () => {
  const rig = await railRig({ servers: { files: SERVER } });
  const client = rig.client();
  for (let count = 0; count < 5; count += 1) await client.request("tools/list");
  await rig.client().request("tools/list");
  await rig.settled();
  // One for each server, ours with it.
  expect(rig.service.decisionsOf("mcp.tool_list")).toHaveLength(2);
  await rig.rules(gate('mcp.server.name == "nobody"'));
  await client.request("tools/list");
  await rig.settled();
  expect(rig.service.decisionsOf("mcp.tool_list")).toHaveLength(4);
  expect(rig.service.calls).toEqual([]);
});

test("a list that asks is closed until a person opens it, and keeps nobody waiting", async () => {
  const rig = await railRig({
    servers: { files: SERVER },
    rules: `[profiles.rules.ask]\naction = "ask"\nmatch = 'event.type == "mcp.tool_list" && mcp.server.name == "files"'\n`,
  });
  const client = rig.client();
  await client.initialize();
  const names = async () =>
    ((await client.request("tools/list")).result?.tools as unknown[] | undefined)?.length;
  expect(await names()).toBe(0);
  expect((await client.request("tools/call", { name: "files__read" })).error?.code).toBe(-32_600);
  await expect.poll(() => rig.service.asks.length).toBe(1);
  rig.service.asks[0]?.resolve("approved");
  await expect.poll(() => client.of("notifications/tools/list_changed").length).toBeGreaterThan(0);
  expect(await names()).toBe(1);
  expect((await client.request("tools/call", { name: "files__read" })).error).toBeUndefined();
});
