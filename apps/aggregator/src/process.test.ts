import { readdirSync, readFileSync } from "node:fs";
import { native } from "@capsem/native";
import { expect, onTestFinished, test, vi } from "vitest";
import { type AggregatorProcess, startAggregator } from "./testing/aggregator-process.ts";
import { loopbackHttp } from "./testing/loopback-http.ts";
import { declared } from "./testing/one-server.ts";
import { ask } from "./testing/proxy-end.ts";
import { sdkServer } from "./testing/sdk-server.ts";

vi.setConfig({ testTimeout: 60_000 });

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable)
  console.log("skipped: the aggregator in a process of its own, because this kernel has no Landlock");
const sealed = test.skipIf(!usable);

async function started(): Promise<AggregatorProcess> {
  const aggregator = startAggregator();
  onTestFinished(async () => {
    aggregator.kill();
    await aggregator.exited;
  });
  await aggregator.ready;
  return aggregator;
}
function http() {
  const client = loopbackHttp();
  onTestFinished(() => client.close());
  return client;
}
const echo = (message: string) => ({ name: "echo", arguments: { message } });
const kindOf = (work: Promise<unknown>) =>
  work.then(
    () => "done",
    (thrown: { kind?: string }) => thrown.kind,
  );
function residentMib({ pid }: AggregatorProcess): number {
  const kib = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return Number(kib) / 1_024;
}
const descriptors = ({ pid }: AggregatorProcess) => readdirSync(`/proc/${pid}/fd`).length;

sealed(
  "a confined aggregator carries calls of servers that it cannot reach itself, and ends in order",
  async () => {
    const server = await sdkServer("both");
    const aggregator = await started();
    expect((await aggregator.ready).unconfined).toEqual([]);
    aggregator.grantEgress(1, http());
    const told: unknown[] = [];
    const proxy = aggregator.grantProxy(1, {
      "server.health": async (params) => {
        told.push(params);
        return {};
      },
    });
    await proxy.call("server.set", { generation: 1, servers: [declared(server.url)] });
    const records = await ask(proxy, { params: echo("hello") });
    expect(records.map(({ kind, text }) => [kind, JSON.parse(text).content[0].text])).toEqual([
      ["result", "hello"],
    ]);
    const catalog = (await proxy.call("server.catalog", { server: "one", refresh: false })) as {
      tools: string[];
    };
    expect(catalog.tools).toHaveLength(8);
    expect(told).toContainEqual({ server: "one", state: "ok", error: null });
    expect(await aggregator.end()).toEqual({ code: 0, signal: null });
    expect(aggregator.log()).toContain("aggregator ended");
  },
);

sealed(
  "a neighbour that is replaced is used at once, and what ran on the old one fails by name",
  async () => {
    const server = await sdkServer("legacy");
    const aggregator = await started();
    const proxy = aggregator.grantProxy(1);
    await proxy.call("server.set", { generation: 1, servers: [declared(server.url)] });
    const early = ask(proxy, { params: echo("early") });
    const first = aggregator.grantEgress(1, http());
    expect((await early).at(-1)?.kind).toBe("result");
    const waiting = ask(proxy, { params: { name: "wait", arguments: {} } });
    await vi.waitFor(() => expect(server.metas).toHaveLength(2));
    first.close();
    const lost = await waiting.catch((thrown: unknown) => thrown);
    expect(lost).toMatchObject({ kind: "upstream_failed", message: expect.stringContaining('"one"') });
    const next = ask(proxy, { params: echo("next") });
    aggregator.grantEgress(2, http());
    expect((await next).at(-1)?.kind).toBe("result");
    const another = aggregator.grantProxy(2);
    await proxy.ended;
    // The servers are those of the process; a new proxy says them again, and their sessions are as they were.
    await another.call("server.set", { generation: 1, servers: [declared(server.url)] });
    expect((await ask(another, { params: echo("after") })).at(-1)?.kind).toBe("result");
    expect(server.messages.filter(({ method }) => method === "initialize")).toHaveLength(1);
  },
);

sealed("what is no grant, or an old one, changes nothing and leaves no descriptor", async () => {
  const server = await sdkServer("modern");
  const aggregator = await started();
  aggregator.grantEgress(5, http());
  const proxy = aggregator.grantProxy(5);
  await proxy.call("server.set", { generation: 1, servers: [declared(server.url)] });
  await ask(proxy, { params: echo("x") });
  const before = descriptors(aggregator);
  const texts = [
    "nonsense",
    "{}",
    '{"kind":"egress","name":"egress","generation":5}',
    '{"kind":"proxy","name":"host","generation":4}',
    '{"kind":"client","name":"x","generation":9}',
    '{"kind":"proxy","name":"host","generation":1e9,"more":1}',
  ];
  for (const text of texts) {
    const [near, far] = native().socketPair("stream");
    aggregator.grantRaw(text, far);
    native().closeDescriptor(near);
  }
  await vi.waitFor(() => expect(aggregator.log().match(/a grant is/g)).toHaveLength(texts.length));
  await vi.waitFor(() => expect(descriptors(aggregator)).toBe(before));
  expect((await ask(proxy, { params: echo("y") })).at(-1)?.kind).toBe("result");
});

sealed("a plan that is none ends it, and it says why", async () => {
  for (const input of ["", "nonsense\n", '{"kind":"aggregator"}\n']) {
    const aggregator = startAggregator(input);
    expect((await aggregator.exited).code).toBe(1);
    expect(aggregator.log()).toContain("aggregator failed");
  }
});

sealed("a thousand calls that are abandoned leave its descriptors and its memory as they were", async () => {
  const server = await sdkServer("modern");
  const aggregator = await started();
  aggregator.grantEgress(1, http());
  const proxy = aggregator.grantProxy(1);
  await proxy.call("server.set", { generation: 1, servers: [declared(server.url)] });
  await ask(proxy, { params: echo("x") });
  const abandon = async () => {
    const calls = Array.from({ length: 40 }, () => {
      const caller = new AbortController();
      setTimeout(() => caller.abort(), 10);
      return kindOf(ask(proxy, { params: { name: "wait", arguments: {} }, signal: caller.signal }));
    });
    expect(new Set(await Promise.all(calls))).toEqual(new Set(["cancelled"]));
  };
  // Code is compiled and the heap has its size after some.
  for (let round = 0; round < 8; round += 1) await abandon();
  // Connections of what was abandoned are closed a moment later.
  const atRest = async () => {
    for (let last = -1; ; ) {
      const now = descriptors(aggregator);
      if (now === last && proxy.streamCount === 0) return now;
      last = now;
      await new Promise((done) => setTimeout(done, 250));
    }
  };
  const before = await atRest();
  const memory = residentMib(aggregator);
  for (let round = 0; round < 17; round += 1) await abandon();
  expect(residentMib(aggregator) - memory).toBeLessThan(24);
  expect(await atRest()).toBeLessThanOrEqual(before);
  expect((await ask(proxy, { params: echo("y") })).at(-1)?.kind).toBe("result");
});
