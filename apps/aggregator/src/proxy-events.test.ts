import type { Peer } from "@capsem/rpc";
import { expect, test, vi } from "vitest";
import { UPSTREAM_LIMITS } from "./limits.ts";
import { ProxyEvents } from "./proxy-events.ts";

function proxy() {
  const told: [string, unknown][] = [];
  const call = async (method: string, params: unknown) => void told.push([method, params]);
  return { told, peer: { call } as unknown as Peer };
}

test("changes of a little while leave together, each once, and one server's flood is not another's", async () => {
  const events = new ProxyEvents(() => 0);
  const { told, peer } = proxy();
  events.attach(peer);
  for (let count = 0; count < 1_000; count += 1) events.changed("loud", "tools");
  for (let count = 0; count < 1_000; count += 1) events.changed("loud", "resource", `test://${count}`);
  events.changed("loud", "prompts");
  events.changed("quiet", "resource", "test://a");
  expect(told).toEqual([]);
  await vi.waitFor(() => expect(told.length).toBeGreaterThan(0));
  const of = (server: string) =>
    told.filter(([, params]) => (params as { server: string }).server === server);
  expect(of("loud")).toHaveLength(UPSTREAM_LIMITS.changesMax + 1);
  expect(of("loud").at(-1)).toEqual(["server.changed", { server: "loud", what: "prompts" }]);
  expect(of("quiet")).toEqual([["server.changed", { server: "quiet", what: "resource", uri: "test://a" }]]);
  events.close();
});

test("log messages beyond so many a second are dropped", () => {
  let now = 0;
  const events = new ProxyEvents(() => now);
  const { told, peer } = proxy();
  events.attach(peer);
  for (let count = 0; count < 1_000; count += 1) events.log("loud", "{}");
  events.log("quiet", '{"level":"info"}');
  expect(told).toHaveLength(UPSTREAM_LIMITS.logsPerSecond + 1);
  now = 1_000;
  events.log("loud", "{}");
  expect(told).toHaveLength(UPSTREAM_LIMITS.logsPerSecond + 2);
});

test("a new proxy is told how the servers are, and of those that are gone nothing", () => {
  const events = new ProxyEvents(() => 0);
  events.health("a", "failed", "it is not there");
  events.health("b", "ok", null);
  events.keep(new Set(["a"]));
  const { told, peer } = proxy();
  events.attach(peer);
  expect(told).toEqual([["server.health", { server: "a", state: "failed", error: "it is not there" }]]);
  events.detach(peer);
  events.health("a", "ok", null);
  expect(told).toHaveLength(1);
});
