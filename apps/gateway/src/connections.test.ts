import { connect, type Socket } from "node:net";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { runFolder } from "./home-folders.ts";
import { CONNECTION_LIMITS } from "./limits.ts";
import { answerOf, httpClient, readReply } from "./testing/http-client.ts";
import { type UpstreamRig, useGateways } from "./testing/use-gateways.ts";
import { rotateToken } from "./token-file.ts";

vi.mock("./limits.ts", async (original) => {
  const real = await original<typeof import("./limits.ts")>();
  return { ...real, CONNECTION_LIMITS: { ...real.CONNECTION_LIMITS } };
});
const LIMITS: Record<string, number> = CONNECTION_LIMITS;
const REAL = { ...LIMITS };
const { startWithUpstream } = useGateways();
const sockets: Socket[] = [];
beforeEach(() => void Object.assign(LIMITS, REAL));
afterEach(() => {
  vi.useRealTimers();
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** A connection that sends this and stays; what comes back is kept. */
async function hold({ port }: UpstreamRig, text: string) {
  const socket = connect({ host: "127.0.0.1", port });
  sockets.push(socket);
  const held = { socket, text: "" };
  socket
    .on("error", () => undefined)
    .on("data", (part) => {
      held.text += String(part);
    });
  await new Promise((resolve) => socket.once("connect", resolve).once("close", resolve));
  socket.write(text);
  return held;
}

const holdAll = (rig: UpstreamRig, count: number, text: string) =>
  Promise.all(Array.from({ length: count }, () => hold(rig, text)));
const healthText = ({ port }: UpstreamRig) => `GET /health HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n\r\n`;
const PLACES = 256;
/** As the gateway was when all connections were alike. */
const noGate = () =>
  void Object.assign(LIMITS, { strangersMax: PLACES, strangersBurstMax: PLACES, openMax: PLACES });

test("without places for members alone, half-sent headers on every place lock out the one with the token", async () => {
  noGate();
  const rig = await startWithUpstream();
  await holdAll(rig, PLACES, "GET /health HTTP/1.1\r\nx: ");
  await expect
    .poll(() =>
      rig.client.get("/status").then(
        () => "answered",
        () => "cut",
      ),
    )
    .toBe("cut");
});

test.each([
  ["half-sent headers", () => "GET /health HTTP/1.1\r\nx: "],
  ["no byte at all", () => ""],
  ["GET /health again and again", healthText],
])("%s on every place does not lock out the one with the token", async (_name, textFor) => {
  const rig = await startWithUpstream();
  for (let round = 0; round < 3; round += 1) {
    const held = await holdAll(rig, PLACES, textFor(rig));
    const replies = Array.from({ length: 20 }, () => rig.client.get("/status"));
    for (const { status } of await Promise.all(replies)) expect(status).toBe(200);
    rig.advance(LIMITS.strangerGraceMs ?? 0);
    expect((await rig.client.get("/status")).status).toBe(200);
    const open = () => held.filter(({ socket }) => socket.readyState === "open").length;
    await expect.poll(open).toBeLessThanOrEqual(CONNECTION_LIMITS.strangersBurstMax);
  }
});

test("an answer to somebody without the token ends the connection, one with it keeps it", async () => {
  const rig = await startWithUpstream();
  const nobody = httpClient(rig.port, null);
  for (const path of ["/health", "/status", "/nope"]) {
    const headers = { connection: "keep-alive" };
    expect((await nobody.get(path, headers)).headers.connection, path).toBe("close");
    expect((await rig.client.get(path, headers)).headers.connection, path).toBe("keep-alive");
  }
  const wrong = httpClient(rig.port, "x".repeat(64));
  expect((await wrong.get("/health", { connection: "keep-alive" })).headers.connection).toBe("close");
});

test("a stranger that is sent away before its request reads why, and its request is not carried out", async () => {
  Object.assign(LIMITS, { strangersMax: 1, strangersBurstMax: 1 });
  const rig = await startWithUpstream();
  const [first] = await holdAll(rig, 1, "GET /health HTTP/1.1\r\n");
  await hold(rig, "");
  await expect.poll(() => first?.text).toContain('"kind":"throttled"');
  expect(first?.text).toContain("connection: close");
  first?.socket.write(`host: 127.0.0.1:${rig.port}\r\n\r\n`);
  await expect.poll(() => first?.socket.readyState).toBe("closed");
  expect(rig.upstream.calls).toEqual([]);
});

test("one member too many is told so by an answer, and an idle one makes place", async () => {
  Object.assign(LIMITS, { membersMax: 2 });
  const rig = await startWithUpstream();
  const busy: (() => void)[] = [];
  rig.upstream.onRequest = (_request, response) => void busy.push(() => response.end("{}"));
  const text = `GET /status HTTP/1.1\r\nhost: 127.0.0.1:${rig.port}\r\nauthorization: Bearer ${rig.token()}\r\n\r\n`;
  const [one] = await holdAll(rig, 2, text);
  await expect.poll(() => busy.length).toBe(2);
  const refused = await rig.client.get("/status");
  expect(refused).toMatchObject({ status: 429, kind: "throttled" });
  expect(rig.upstream.calls).toHaveLength(2);
  for (const answer of busy.splice(0)) answer();
  await expect.poll(() => one?.text).toContain("200");
  rig.upstream.onRequest = (_request, response) => void response.end("{}");
  expect((await rig.client.get("/status")).status).toBe(200);
});

test("a rotation ends the exchanges of the token before it, and its kept connections have no place any more", async () => {
  const rig = await startWithUpstream();
  rig.upstream.onRequest = (_request, response) => void response.write("{");
  const outgoing = rig.client.begin("GET", "/status");
  outgoing.end();
  const old = readReply(await answerOf(outgoing)).then(
    () => "whole",
    () => "cut",
  );
  const kept = await hold(rig, "");
  rig.upstream.onRequest = (_request, response) => void response.end("{}");
  kept.socket.write(
    `GET /status HTTP/1.1\r\nhost: 127.0.0.1:${rig.port}\r\nauthorization: Bearer ${rig.token()}\r\n\r\n`,
  );
  await expect.poll(() => kept.text).toContain("200");
  rotateToken(runFolder(rig.home));
  // Nobody asks anything: the gateway finds it by itself.
  expect(await old).toBe("cut");
  Object.assign(LIMITS, { membersMax: 1 });
  expect((await httpClient(rig.port, rig.token()).get("/status")).status).toBe(200);
  expect(kept.socket.readyState).toBe("open");
  Object.assign(LIMITS, { strangersMax: 0, strangersBurstMax: 0 });
  await hold(rig, "");
  await expect.poll(() => kept.socket.readyState).toBe("closed");
});

test("a kept connection whose next request has the new token goes on over a rotation", async () => {
  // Only requests look at the token file.
  vi.useFakeTimers({ toFake: ["setInterval"] });
  const rig = await startWithUpstream();
  const get = (token: string) =>
    `GET /status HTTP/1.1\r\nhost: 127.0.0.1:${rig.port}\r\nauthorization: Bearer ${token}\r\n\r\n`;
  const held = await hold(rig, get(rig.token()));
  await expect.poll(() => held.text.match(/200/g)).toHaveLength(1);
  rotateToken(runFolder(rig.home));
  held.socket.write(get(rig.token()));
  await expect.poll(() => held.text.match(/200/g)).toHaveLength(2);
  expect(held.socket.readyState).toBe("open");
});
