import { Agent, request as httpRequest, type ServerResponse } from "node:http";
import { connect } from "node:net";
import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import { WebSocketServer } from "ws";
import { PROCESS_LIMITS } from "./limits.ts";
import { answerOf, readReply } from "./testing/http-client.ts";
import { useGateways } from "./testing/use-gateways.ts";
import { WsClient } from "./testing/ws-client.ts";

const { startWithUpstream } = useGateways();

/** How long the gateway took to stop. */
async function stopMs(gateway: { close(): Promise<void> }): Promise<number> {
  const startedMs = performance.now();
  await gateway.close();
  return performance.now() - startedMs;
}

test("connections without a request do not hold it up", async () => {
  const { port, token, gateway } = await startWithUpstream();
  const agent = new Agent({ keepAlive: true });
  const kept = httpRequest({
    host: "127.0.0.1",
    port,
    path: "/status",
    agent,
    headers: { authorization: `Bearer ${token()}` },
  }).end();
  expect((await readReply(await answerOf(kept))).status).toBe(200);
  const silent = connect({ host: "127.0.0.1", port });
  await new Promise((resolve) => silent.once("connect", resolve));
  expect(await stopMs(gateway)).toBeLessThan(PROCESS_LIMITS.closeTimeoutMs + 500);
  agent.destroy();
  silent.destroy();
});

test("an answer under way leaves whole, and its kept connection ends with it", async () => {
  const { port, token, gateway, upstream } = await startWithUpstream();
  const held: ServerResponse[] = [];
  upstream.onRequest = (_request, response) => held.push(response);
  const agent = new Agent({ keepAlive: true });
  const outgoing = httpRequest({
    host: "127.0.0.1",
    port,
    path: "/status",
    agent,
    headers: { authorization: `Bearer ${token()}` },
  }).end();
  await expect.poll(() => held.length).toBe(1);
  const stopping = stopMs(gateway);
  held[0]?.end("whole");
  expect(String((await readReply(await answerOf(outgoing))).bytes)).toBe("whole");
  expect(await stopping).toBeLessThan(PROCESS_LIMITS.closeTimeoutMs);
  agent.destroy();
});

test("a WebSocket whose handshake hangs does not hold it up", async () => {
  const { port, token, gateway, upstream } = await startWithUpstream();
  upstream.onUpgrade = () => undefined;
  const client = new WsClient(port, "/events", { token: token(), protocols: ["capsem.events.v1"] });
  await expect.poll(() => upstream.calls.length).toBe(1);
  expect(await stopMs(gateway)).toBeLessThan(PROCESS_LIMITS.closeTimeoutMs + 1_000);
  expect((await client.closed).code).toBe(1006);
});

test("a WebSocket whose handshake ends while it stops is told that, and not that its token is wrong", async () => {
  const { port, token, gateway, upstream } = await startWithUpstream();
  const server = new WebSocketServer({ noServer: true });
  const shake = defer<() => void>();
  upstream.onUpgrade = (request, socket, head) =>
    shake.resolve(() => server.handleUpgrade(request, socket, head, () => undefined));
  const client = new WsClient(port, "/events", { token: token(), protocols: ["capsem.events.v1"] });
  const answer = await shake.promise;
  const stopping = gateway.close();
  answer();
  expect(await client.refusal).toMatchObject({ status: 503 });
  await stopping;
});

test("after it stopped nothing listens any more", async () => {
  const { client, gateway } = await startWithUpstream();
  await gateway.close();
  await expect(client.get("/health")).rejects.toThrow("ECONNREFUSED");
});
