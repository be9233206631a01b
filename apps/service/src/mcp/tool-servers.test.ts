import type { PolicySnapshot, ServerInForce } from "@capsem/policy";
import { expect, test } from "vitest";
import type { PinBook } from "./pin-book.ts";
import { ToolServers } from "./tool-servers.ts";

function serversOf(...names: string[]): ToolServers {
  const declared = names.map((name) => [
    name,
    { name, isEnabled: true, grants: [], headers: new Map(), timeoutSecs: 60 } as unknown as ServerInForce,
  ]);
  const snapshot = { servers: new Map(declared as [string, ServerInForce][]) } as unknown as PolicySnapshot;
  return new ToolServers({
    snapshot: () => snapshot,
    pins: () => ({ of: () => null }) as unknown as PinBook,
  });
}

test("what is known of a server last is its state, whichever VM it is known from", () => {
  const servers = serversOf("shop");
  const stateOf = () => {
    const { state, error } = servers.info("shop");
    return [state, error];
  };
  expect(stateOf()).toEqual(["unseen", null]);
  servers.note({ server: "shop", state: "failed", error: "nothing listens there" });
  expect(stateOf()).toEqual(["failed", "nothing listens there"]);
  servers.answered("shop");
  expect(stateOf()).toEqual(["ok", null]);
  servers.note({ server: "shop", state: "failed", error: "no credential" });
  expect(stateOf()).toEqual(["failed", "no credential"]);
});

test("what answers and is not declared, or is ours, has no state of that", () => {
  const servers = serversOf("shop");
  servers.answered("none");
  servers.answered("local");
  expect(servers.info("local")).toMatchObject({ state: "unseen" });
});

test("a proxy hears of what is switched off by its name alone", () => {
  const of = (name: string, isEnabled: boolean) =>
    [name, { ...{ name, isEnabled, url: "https://a.test/mcp" }, timeoutSecs: 60 }] as const;
  const snapshot = { servers: new Map([of("on", true), of("off", false)]) } as unknown as PolicySnapshot;
  const pins = () => ({ pins: () => [] }) as unknown as PinBook;
  const { servers, disabled } = new ToolServers({ snapshot: () => snapshot, pins }).set();
  expect([servers.map(({ name }) => name), disabled]).toEqual([["on"], ["off"]]);
});
