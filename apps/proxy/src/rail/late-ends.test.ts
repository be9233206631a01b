import { defer } from "@capsem/base";
import { afterEach, expect, test, vi } from "vitest";
import { wholeText } from "../conversation.ts";
import { type RailRig, railRig } from "../testing/rail-rig.ts";
import { type ScriptedServer, type Serve, said, tool } from "../testing/scripted-servers.ts";
import { type Message, MODERN, type TestClient } from "../testing/test-client.ts";

// What ends, is lost, or is replaced just while something else is waited for.

const textOf = ({ result }: Message) => (result?.content as { text: string }[] | undefined)?.[0]?.text;
const never = () => new Promise<never>(() => undefined);
const rule = (match: string, action = "ask") =>
  `[profiles.rules.r]\naction = "${action}"\nmatch = '''${match}'''\n`;
const question = {
  mode: "form",
  message: "Which city?",
  requestedSchema: { type: "object", properties: {} },
};
const able = { elicitation: {}, sampling: {}, roots: {} };
const reader = (serve?: Serve): ScriptedServer => ({
  tools: [tool("read")],
  ...(serve === undefined ? {} : { serve }),
});

async function outcomes(rig: RailRig): Promise<string[]> {
  await rig.settled();
  return rig.service.calls.map(({ outcome }) => outcome);
}

/** It takes no message of this kind, and is there all the same. */
function takesNo(client: TestClient, method: string): void {
  const send = client.send.bind(client);
  client.send = (message, about) => (wholeText(message).includes(method) ? never() : send(message, about));
}

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

test("a client that takes nothing holds no place beyond the time of its calls", async () => {
  const serve: Serve = async ({ params, notify }) => {
    if (!params.includes('"progressToken"')) return said("here");
    await notify("notifications/progress", { progressToken: "t", progress: 1 });
    return never();
  };
  const brief = tool("read", { _meta: { "dev.capsem/timeout_ms": 50 } });
  const rig = await railRig({ servers: { s: { tools: [brief], serve } }, cores: 1 });
  const stalled = rig.client();
  takesNo(stalled, "notifications/progress");
  const calls = [1, 2, 3, 4].map(() => stalled.call("s__read", {}, { _meta: { progressToken: "t" } }));
  for (const { error } of await Promise.all(calls)) expect(error?.code).toBe(-32_000);
  expect(textOf(await rig.client().call("s__read"))).toBe("here");
  expect(await outcomes(rig)).toEqual(["failed", "failed", "failed", "failed", "done"]);
});

test("a call that is cancelled while the process of its server starts ends at once, and holds no place", async () => {
  const local = { tools: [tool("echo")] };
  const rig = await railRig({ servers: { s: reader() }, local, cores: 1 });
  const client = rig.client();
  await client.call("s__read");
  await client.call("local__echo");
  rig.service.onNeed = () => undefined;
  rig.aggregator.kill();
  await expect.poll(() => rig.logs.join()).toContain("a neighbour is gone");
  const ids = ["a", "b", "c", "d"];
  for (const id of ids) void client.begin("tools/call", { name: "s__read" }, id);
  await expect.poll(() => rig.service.needs.length).toBe(3);
  for (const id of ids) await client.notify("notifications/cancelled", { requestId: id });
  await expect.poll(() => outcomes(rig)).toEqual(["done", "done", ...ids.map(() => "cancelled")]);
  expect((await rig.client().call("local__echo")).error).toBeUndefined();
});

test("servers that are declared while the process that serves them starts are told to it", async () => {
  const rig = await railRig({ servers: { s: reader() } });
  const told = defer<void>();
  rig.aggregator.onSet = () => told.promise;
  const client = rig.client();
  const listed = client.request("tools/list");
  await expect.poll(() => rig.aggregator.sets.length).toBe(1);
  await rig.declare({ s: reader(), t: reader() });
  told.resolve();
  await listed;
  expect(textOf(await client.call("t__read"))).toContain("t tools/call");
  expect(rig.aggregator.sets.at(-1)?.servers.map(({ name }) => name)).toEqual(["s", "t"]);
});

test("servers that are declared while the process that serves them dies are in force, and its successor has them", async () => {
  const rig = await railRig({ servers: { s: reader() } });
  const client = rig.client();
  await client.call("s__read");
  rig.aggregator.onSet = never;
  const declared = rig.declare({ s: reader(), t: reader() });
  await expect.poll(() => rig.aggregator.sets.length).toBe(2);
  rig.aggregator.onSet = undefined;
  rig.aggregator.kill();
  await declared;
  expect(textOf(await client.call("t__read"))).toContain("t tools/call");
});

test("servers that are declared while the process that serves them is replaced are told to the new one", async () => {
  const rig = await railRig({ servers: { s: reader() } });
  const client = rig.client();
  await client.call("s__read");
  rig.aggregator.onSet = never;
  const declared = rig.declare({ s: reader(), t: reader() });
  await expect.poll(() => rig.aggregator.sets.length).toBe(2);
  rig.aggregator.onSet = undefined;
  rig.grant("aggregator");
  await declared;
  expect(textOf(await client.call("t__read"))).toContain("t tools/call");
});

test("a process that is replaced before its end is seen leaves no old lists behind", async () => {
  const server = reader();
  const rig = await railRig({ servers: { s: server } });
  const client = rig.client();
  await client.request("tools/list");
  server.tools = [tool("read"), tool("write")];
  rig.grant("aggregator");
  await client.request("tools/list");
  await expect.poll(async () => JSON.stringify(await client.request("tools/list"))).toContain("s__write");
});

test("what a server asks ends with its call: nobody is asked on", async () => {
  const done = defer<void>();
  const serve: Serve = async ({ ask }) => {
    void ask("elicitation/create", question);
    await done.promise;
    return said("done");
  };
  const rig = await railRig({ servers: { s: reader(serve) } });
  const client = rig.client({ answer: never });
  await client.initialize(able);
  const call = client.call("s__read");
  await expect.poll(() => client.of("elicitation/create").length).toBe(1);
  done.resolve();
  expect(textOf(await call)).toBe("done");
  await expect.poll(() => client.of("notifications/cancelled").length).toBe(1);
  expect(client.of("notifications/cancelled")[0]?.params?.requestId).toBe(
    client.of("elicitation/create")[0]?.id,
  );
});

test("a person who is asked about a server's question is asked no longer than its call goes on", async () => {
  const done = defer<void>();
  const serve: Serve = async ({ ask }) => {
    void ask("elicitation/create", question);
    await done.promise;
    return said("done");
  };
  const rig = await railRig({
    servers: { s: reader(serve) },
    rules: rule('mcp.method == "elicitation/create"'),
  });
  const client = rig.client({ answer: never });
  await client.initialize(able);
  const call = client.call("s__read");
  await expect.poll(() => rig.service.asks.length).toBe(1);
  done.resolve();
  expect(textOf(await call)).toBe("done");
  await expect.poll(() => rig.service.asks[0]?.signal.aborted).toBe(true);
  expect(client.of("elicitation/create")).toEqual([]);
});

test("a server that asks and answers in one breath has answered", async () => {
  const serve: Serve = async ({ ask }) => {
    void ask("elicitation/create", question);
    return said("done");
  };
  const rig = await railRig({ servers: { s: reader(serve) } });
  const answer = await rig.client().call("s__read", {}, { _meta: MODERN });
  expect(textOf(answer)).toBe("done");
  expect(await outcomes(rig)).toEqual(["done"]);
});

test("a request that waits for a place waits no longer than its own time", async () => {
  const resources = [{ uri: "file:///a", name: "a" }];
  const serve: Serve = async ({ method, notify }) => {
    while (method === "tools/call") {
      await notify("notifications/message", { level: "info", data: "alive" });
      await new Promise((resolve) => setTimeout(resolve, 20_000));
    }
    return said("read");
  };
  const rig = await railRig({ servers: { s: { ...reader(serve), resources } }, cores: 1 });
  const client = rig.client();
  await client.request("resources/list");
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  for (const id of ["a", "b", "c", "d"]) void client.begin("tools/call", { name: "s__read" }, id);
  const read = client.request("resources/read", { uri: "file:///a" });
  await vi.advanceTimersByTimeAsync(59_000);
  expect(client.messages.filter(({ error }) => error !== undefined)).toEqual([]);
  await vi.advanceTimersByTimeAsync(2_000);
  expect((await read).error?.code).toBe(-32_000);
});

test("a call that is held for its client ends when that client leaves", async () => {
  const serve: Serve = async ({ ask }) => said(JSON.stringify(await ask("elicitation/create", question)));
  const rig = await railRig({ servers: { s: reader(serve) } });
  const client = rig.client();
  const stays = rig.client();
  for (const each of [client, stays]) {
    const { result } = await each.call("s__read", {}, { _meta: MODERN });
    expect(result?.resultType).toBe("input_required");
  }
  expect(rig.aggregator.open).toBe(2);
  client.leave();
  await expect.poll(() => outcomes(rig)).toEqual(["cancelled"]);
  // At the server it is as if it were called still: it was only told that nobody listens.
  await expect.poll(() => rig.aggregator.gone).toBe(1);
});

test("a call whose question does not reach its client ends", async () => {
  const serve: Serve = async ({ ask }) => said(JSON.stringify(await ask("elicitation/create", question)));
  const rig = await railRig({ servers: { s: reader(serve) } });
  const client = rig.client({ transport: "http" });
  client.send = async () => false;
  await client.begin("tools/call", { name: "s__read", _meta: MODERN });
  await expect.poll(() => outcomes(rig)).toEqual(["cancelled"]);
});

test("a person who is asked about a result is asked no longer than somebody may have it", async () => {
  const goOn = defer<void>();
  const serve: Serve = async ({ ask }) => {
    void ask("elicitation/create", question);
    await goOn.promise;
    return said("done");
  };
  const rig = await railRig({
    servers: { s: reader(serve) },
    rules: rule('event.type == "mcp.tool_result"'),
  });
  const client = rig.client();
  expect((await client.call("s__read", {}, { _meta: MODERN })).result?.resultType).toBe("input_required");
  goOn.resolve();
  await expect.poll(() => rig.service.asks.length).toBe(1);
  client.leave();
  await expect.poll(() => rig.service.asks[0]?.signal.aborted).toBe(true);
  expect(await outcomes(rig)).toEqual(["cancelled"]);
});

test("a person who is asked about a list is asked no longer than it is that list", async () => {
  const asks = (reason: string) => `${rule('event.type == "mcp.tool_list"')}reason = "${reason}"\n`;
  const rig = await railRig({ servers: { s: reader() }, rules: asks("one") });
  const client = rig.client();
  await client.request("tools/list");
  // Of ours as well.
  await expect.poll(() => rig.service.asks.length).toBe(2);
  await rig.rules(asks("two"));
  await client.request("tools/list");
  await expect.poll(() => rig.service.asks.length).toBe(4);
  await expect
    .poll(() => rig.service.asks.map(({ signal }) => signal.aborted))
    .toEqual([true, true, false, false]);
  expect(rig.logs.join()).not.toContain("nobody could be asked");
});

test("a subscription that is cancelled just when it is made takes no other with it", async () => {
  const resources = ["a", "b"].map((name) => ({ uri: `file:///${name}`, name }));
  const rig = await railRig({ servers: { s: { resources } } });
  const client = rig.client();
  await client.initialize();
  await client.request("resources/list");
  await client.request("resources/subscribe", { uri: "file:///a" });
  const now = Date.now.bind(Date);
  for (let turns = 0; turns < 24; turns += 1) {
    const id = `n${turns}`;
    let reads = 0;
    vi.spyOn(Date, "now").mockImplementation(() => {
      reads += 1;
      // The first one is of the request, the second one of its answer.
      if (reads === 2) void after(turns, () => client.notify("notifications/cancelled", { requestId: id }));
      return now();
    });
    await client.begin("resources/subscribe", { uri: "file:///b" }, id);
    expect(reads).toBe(2);
  }
  const left = rig.aggregator.requests.filter(({ method }) => method === "resources/unsubscribe");
  expect(left.filter(({ params }) => params.includes("file:///a"))).toEqual([]);
  await rig.aggregator.tell("server.changed", { server: "s", what: "resource", uri: "file:///a" });
  await expect.poll(() => client.of("notifications/resources/updated").length).toBe(1);
});

/** A server that counts who is subscribed, and takes its time with one of the two. */
function watched(slow: "resources/subscribe" | "resources/unsubscribe") {
  const goOn = defer<void>();
  const done: string[] = [];
  let isSlow = false;
  const serve: Serve = async ({ method }) => {
    if (isSlow && method === slow) await goOn.promise;
    done.push(method.slice("resources/".length));
    return { result: {} };
  };
  const slowFromNow = () => {
    isSlow = true;
  };
  return { done, goOn, slowFromNow, server: { resources: [{ uri: "file:///a", name: "a" }], serve } };
}

test.each(["leaves", "unsubscribes"] as const)(
  "who subscribes while the last one %s is subscribed in the end",
  async (how) => {
    const { done, goOn, slowFromNow, server } = watched("resources/unsubscribe");
    const rig = await railRig({ servers: { s: server } });
    const [first, second] = [rig.client(), rig.client()];
    await first.request("resources/list");
    await first.request("resources/subscribe", { uri: "file:///a" });
    slowFromNow();
    if (how === "leaves") first.leave();
    else void first.begin("resources/unsubscribe", { uri: "file:///a" });
    await expect.poll(() => rig.aggregator.requests.length).toBe(2);
    const subscribed = second.request("resources/subscribe", { uri: "file:///a" });
    await rig.settled();
    expect(done).toEqual(["subscribe"]);
    goOn.resolve();
    await subscribed;
    expect(done).toEqual(["subscribe", "unsubscribe", "subscribe"]);
  },
);

test.each(["leaves", "unsubscribes"] as const)(
  "who is being subscribed when the other one %s stays subscribed",
  async (how) => {
    const { done, goOn, slowFromNow, server } = watched("resources/subscribe");
    const rig = await railRig({ servers: { s: server } });
    const [first, second] = [rig.client(), rig.client()];
    await first.request("resources/list");
    await first.request("resources/subscribe", { uri: "file:///a" });
    slowFromNow();
    const subscribed = second.request("resources/subscribe", { uri: "file:///a" });
    await expect.poll(() => rig.aggregator.requests.length).toBe(2);
    if (how === "leaves") first.leave();
    else await first.request("resources/unsubscribe", { uri: "file:///a" });
    goOn.resolve();
    await subscribed;
    await rig.settled();
    expect(done).toEqual(["subscribe", "subscribe"]);
    second.leave();
    await expect.poll(() => done).toEqual(["subscribe", "subscribe", "unsubscribe"]);
  },
);

test("where the other one leaves and the new one is not subscribed after all, the server is told", async () => {
  const { done, goOn, slowFromNow, server } = watched("resources/subscribe");
  const rig = await railRig({ servers: { s: server } });
  const [first, second] = [rig.client(), rig.client()];
  await first.request("resources/list");
  await first.request("resources/subscribe", { uri: "file:///a" });
  slowFromNow();
  void second.begin("resources/subscribe", { uri: "file:///a" }, "x");
  await expect.poll(() => rig.aggregator.requests.length).toBe(2);
  first.leave();
  await rig.settled();
  expect(rig.aggregator.requests).toHaveLength(2);
  await second.notify("notifications/cancelled", { requestId: "x" });
  await expect.poll(() => done).toEqual(["subscribe", "unsubscribe"]);
  goOn.resolve();
});

/** After so many turns of what is settled already. */
async function after(turns: number, act: () => unknown): Promise<void> {
  for (let turn = 0; turn < turns; turn += 1) await null;
  act();
}

test("a call that is cancelled just when it is held is held no longer", async () => {
  const serve: Serve = async ({ ask }) => said(JSON.stringify(await ask("elicitation/create", question)));
  let held: () => void = () => undefined;
  const random = (bytes: number) => {
    // Of the state that its client comes back with.
    if (bytes === 18) held();
    count += 1;
    return new Uint8Array(bytes).fill(count);
  };
  let count = 0;
  const rig = await railRig({ servers: { s: reader(serve) }, random });
  const client = rig.client({ transport: "http" });
  for (let turns = 0; turns < 24; turns += 1) {
    const id = `n${turns}`;
    held = () => void after(turns, () => client.notify("notifications/cancelled", { requestId: id }));
    const before = client.texts.length;
    await client.begin("tools/call", { name: "s__read", _meta: MODERN }, id);
    if (client.texts.length > before)
      expect(client.messages.at(-1)?.result?.resultType).toBe("input_required");
    else await expect.poll(() => outcomes(rig), { message: `after ${turns} turns` }).toHaveLength(turns + 1);
    if (client.texts.length > before) break;
  }
});
