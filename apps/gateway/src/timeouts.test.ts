import { Socket } from "node:net";
import { afterEach, expect, test, vi } from "vitest";
import { HTTP_LIMITS, SERVICE_LIMITS, WEBSOCKET_LIMITS } from "./limits.ts";
import { answerOf, readReply } from "./testing/http-client.ts";
import { useGateways } from "./testing/use-gateways.ts";
import { WsClient } from "./testing/ws-client.ts";

// Before the rigs' own hook, which runs after this one and needs real time.
const { startWithUpstream } = useGateways();
afterEach(() => {
  vi.useRealTimers();
});

/** Sockets go on as ever; only our own timers stand still. */
function stopTime(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
}

test("a service that never answers a handshake is given up", async () => {
  const { port, token, upstream } = await startWithUpstream();
  const gone = new Promise<void>((resolve) => {
    upstream.onUpgrade = (_request, socket) => {
      socket.resume().once("end", () => {
        socket.end();
        resolve();
      });
    };
  });
  stopTime();
  const client = new WsClient(port, "/events", { token: token(), protocols: ["capsem.events.v1"] });
  await expect.poll(() => upstream.calls.length).toBe(1);
  vi.advanceTimersByTime(WEBSOCKET_LIMITS.handshakeTimeoutMs);
  const refusal = await client.refusal;
  expect(refusal?.status).toBe(504);
  expect(refusal?.text).toContain('"kind":"unresponsive"');
  await gone;
});

test("a body that stands still is given up, and the service's request with it", async () => {
  const { client, upstream } = await startWithUpstream();
  const cut = new Promise<void>((resolve) => {
    upstream.onRequest = (request, response) => {
      request.resume();
      response.once("close", resolve);
    };
  });
  stopTime();
  const outgoing = client.begin("POST", "/vms/create", { headers: { "content-length": "10" } });
  const answered = answerOf(outgoing);
  outgoing.write("{");
  await expect.poll(() => upstream.calls.length).toBe(1);
  vi.advanceTimersByTime(HTTP_LIMITS.bodyIdleMs);
  await cut;
  const reply = readReply(await answered);
  vi.advanceTimersByTime(HTTP_LIMITS.refusedBodyMs);
  expect(await reply).toMatchObject({ status: 504, kind: "timeout" });
});

test("a connection to the service that does not come is given up, and closed when it comes after all", async () => {
  let late: ((socket: Socket) => void) | null = null;
  const { client } = await startWithUpstream({
    powers: {
      connectService: () =>
        new Promise((resolve) => {
          late = resolve;
        }),
    },
  });
  stopTime();
  const reply = client.get("/status");
  await expect.poll(() => late).not.toBeNull();
  vi.advanceTimersByTime(SERVICE_LIMITS.connectTimeoutMs);
  expect(await reply).toMatchObject({ status: 502, kind: "service_away" });
  const socket = new Socket();
  (late as ((one: Socket) => void) | null)?.(socket);
  await expect.poll(() => socket.destroyed).toBe(true);
});
