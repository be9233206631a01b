// The stream of changes of a server of 2026-07-28, asked for anew while it is open.
import { expect, test, vi } from "vitest";
import { httpServer, sendEvents, sendJson } from "../testing/http-server.ts";
import { oneServer } from "../testing/one-server.ts";

async function listening() {
  const streams: ReturnType<typeof sendEvents>[] = [];
  const server = await httpServer(({ response, message }) => {
    if (message.method === "subscriptions/listen") return streams.push(sendEvents(response));
    const result = { supportedVersions: ["2026-07-28"], capabilities: {}, resultType: "complete" };
    return sendJson(response, { jsonrpc: "2.0", id: message.id, result });
  });
  const one = oneServer(server.url, { protocol: "modern" });
  const subscribe = (uri: string) => one.call({ method: "resources/subscribe", params: { uri } });
  const say = (at: number, method: string, params: unknown = {}) =>
    streams[at]?.event({ jsonrpc: "2.0", method: `notifications/${method}`, params });
  return { one, streams, subscribe, say };
}

test("what was half said on the stream before is no part of the next one", async () => {
  const { one, streams, subscribe, say } = await listening();
  const first = subscribe("test://a");
  await vi.waitFor(() => expect(streams).toHaveLength(1));
  say(0, "subscriptions/acknowledged");
  await first.outcome;
  streams[0]?.raw('data: {"jsonrpc":"2.0","met');
  await vi.waitFor(() => expect(one.upstream.load.bytes).toBeGreaterThan(0));
  const second = subscribe("test://b");
  await vi.waitFor(() => expect(streams).toHaveLength(2));
  say(1, "subscriptions/acknowledged");
  await second.outcome;
  say(1, "resources/updated", { uri: "test://b" });
  await vi.waitFor(() => expect(one.heard.changed).toEqual([{ what: "resource", uri: "test://b" }]));
  expect(streams).toHaveLength(2);
});

test("who subscribes is told so when the server listens, whoever asks for another filter meanwhile", async () => {
  const { one, streams, subscribe, say } = await listening();
  const ends: string[] = [];
  const calls: Promise<unknown>[] = [];
  for (const uri of ["test://a", "test://b"]) {
    const call = subscribe(uri);
    calls.push(call.outcome.then(() => ends.push(uri)));
    await vi.waitFor(() => expect(streams).toHaveLength(calls.length));
  }
  // The same resource once more: nothing new is asked for, and it is not listened to yet.
  calls.push(subscribe("test://b").outcome.then(() => ends.push("test://b")));
  await one.call().outcome;
  expect(ends).toEqual([]);
  say(streams.length - 1, "subscriptions/acknowledged");
  await Promise.all(calls);
  expect(ends).toHaveLength(3);
});
