import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import type { Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { useRigs } from "../../service/src/testing/use-rigs.ts";
import { runFolder } from "./home-folders.ts";
import { WEBSOCKET_LIMITS } from "./limits.ts";
import { type UpstreamRig, useGateways } from "./testing/use-gateways.ts";
import { WsClient, type WsOptions } from "./testing/ws-client.ts";
import { rotateToken, tokenPath } from "./token-file.ts";

const serviceWith = useRigs();
const { start, startWithUpstream } = useGateways();
const ID = "vm_abcdefghij234567";
const STREAM = `/vms/${ID}/stream`;
const PROTOCOL = "capsem.stream.v1";
const clients: WsClient[] = [];
afterEach(() => {
  for (const { socket } of clients.splice(0)) socket.terminate();
});

function open(rig: { port: number }, path: string, options: WsOptions): WsClient {
  const client = new WsClient(rig.port, path, options);
  clients.push(client);
  return client;
}

/** The connection under a WebSocket, to send what is no whole frame. */
function connectionOf(webSocket: WebSocket | undefined): Socket {
  return (webSocket as unknown as { _socket: Socket })._socket;
}

/** The fake service speaks real WebSocket; its sockets are the test's to use. */
async function startWithSockets(): Promise<UpstreamRig & { accepted: WebSocket[] }> {
  const rig = await startWithUpstream();
  const server = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  const accepted: WebSocket[] = [];
  rig.upstream.onUpgrade = (request, socket, head) => {
    server.handleUpgrade(request, socket, head, (webSocket) => {
      webSocket.on("error", () => undefined);
      accepted.push(webSocket);
      webSocket.on("message", (data, isBinary) => webSocket.send(data, { binary: isBinary }));
    });
  };
  return { ...rig, accepted };
}

test("a page authenticates by a subprotocol, of which only the real one is selected and reaches the service", async () => {
  const rig = await startWithSockets();
  const protocols = [`capsem.token.${rig.token()}`, PROTOCOL];
  const client = open(rig, STREAM, { protocols, headers: { origin: "http://localhost:5173" } });
  expect(await client.refusal).toBeNull();
  expect(client.socket.protocol).toBe(PROTOCOL);
  expect(client.socket.extensions).toBe("");
  client.socket.send("hello");
  await expect.poll(() => client.messages.map(String)).toEqual(["hello"]);
  const raw = rig.upstream.calls[0]?.rawHeaders ?? [];
  expect(raw.join("\n")).not.toContain(rig.token());
  expect(raw.join("\n")).not.toContain("permessage-deflate");
  expect(raw).toContain("gateway");
  expect(raw).toContain(createHash("sha256").update(rig.token()).digest("hex").slice(0, 8));
});

test("a program authenticates by the header, and either side's close reaches the other with its code", async () => {
  const rig = await startWithSockets();
  const options = { token: rig.token(), protocols: [PROTOCOL] };
  const first = open(rig, STREAM, options);
  expect(await first.refusal).toBeNull();
  const closed = new Promise((resolve) => rig.accepted[0]?.once("close", resolve));
  first.socket.close(4000, "bye");
  expect(await closed).toBe(4000);
  const second = open(rig, STREAM, options);
  expect(await second.refusal).toBeNull();
  rig.accepted[1]?.close(4001, "done");
  expect(await second.closed).toEqual({ code: 4001, reason: "done" });
  const third = open(rig, STREAM, options);
  expect(await third.refusal).toBeNull();
  const lost = new Promise((resolve) => rig.accepted[2]?.once("close", resolve));
  third.socket.terminate();
  expect(await lost).toBe(1006);
  const fourth = open(rig, STREAM, options);
  expect(await fourth.refusal).toBeNull();
  rig.accepted[3]?.terminate();
  expect((await fourth.closed).code).toBe(1006);
});

const WRONG = "A".repeat(64);
test.each<readonly [string, number, string, (token: string) => WsOptions]>([
  ["no credential", 401, STREAM, () => ({ protocols: [PROTOCOL] })],
  ["a wrong token", 401, STREAM, () => ({ protocols: [PROTOCOL, `capsem.token.${WRONG}`] })],
  ["an empty token", 401, STREAM, () => ({ protocols: [PROTOCOL, "capsem.token."] })],
  ["a wrong header", 401, STREAM, () => ({ protocols: [PROTOCOL], token: WRONG })],
  ["a token in the query", 401, `${STREAM}?token=TOKEN`, () => ({ protocols: [PROTOCOL] })],
  [
    "two credentials",
    401,
    STREAM,
    (token) => ({ protocols: [PROTOCOL, `capsem.token.${token}`], token: WRONG }),
  ],
  [
    "two tokens",
    401,
    STREAM,
    (token) => ({ protocols: [PROTOCOL, `capsem.token.${token}`, `capsem.token.${WRONG}`] }),
  ],
  ["the token alone", 400, STREAM, (token) => ({ protocols: [`capsem.token.${token}`] })],
  ["the other route's protocol", 400, STREAM, (token) => ({ protocols: ["capsem.events.v1"], token })],
  ["no protocol", 400, "/events", (token) => ({ token })],
  [
    "a page of another site",
    403,
    STREAM,
    (token) => ({ protocols: [PROTOCOL], token, headers: { origin: "http://localhost.evil.com" } }),
  ],
  [
    "another name",
    403,
    STREAM,
    (token) => ({ protocols: [PROTOCOL], token, headers: { host: "evil.example" } }),
  ],
  ["an unknown route", 404, "/nope", (token) => ({ protocols: [PROTOCOL], token })],
  ["a plain route", 400, "/status", (token) => ({ protocols: [PROTOCOL], token })],
  ["a malformed VM", 400, "/vms/..%2f/stream", (token) => ({ protocols: [PROTOCOL], token })],
])("%s is %i without a call", async (_name, status, path, make) => {
  const rig = await startWithSockets();
  const client = open(rig, path.replace("TOKEN", rig.token()), make(rig.token()));
  expect((await client.refusal)?.status).toBe(status);
  expect(rig.upstream.calls).toEqual([]);
});

test("wrong tokens on WebSockets are throttled with those of requests", async () => {
  const rig = await startWithSockets();
  for (let count = 0; count < 20; count++) {
    const client = open(rig, STREAM, { protocols: [PROTOCOL], token: WRONG });
    expect((await client.refusal)?.status).toBe(401);
  }
  expect((await open(rig, STREAM, { protocols: [PROTOCOL], token: WRONG }).refusal)?.status).toBe(429);
  const right = open(rig, STREAM, { protocols: [PROTOCOL], token: rig.token() });
  expect(await right.refusal).toBeNull();
});

test("a replaced token ends open WebSockets with 4401, also in the middle of a message, and is refused", async () => {
  const rig = await startWithSockets();
  const old = rig.token();
  const idle = open(rig, STREAM, { protocols: [PROTOCOL], token: old });
  const busy = open(rig, STREAM, { protocols: [PROTOCOL], token: old });
  expect([await idle.refusal, await busy.refusal]).toEqual([null, null]);
  // A message whose frame is longer than what has come of it when the token is replaced.
  const raw = connectionOf(rig.accepted[1]);
  const before = connectionOf(busy.socket).bytesRead;
  raw.write(Buffer.from([0x82, 4, 1, 2]));
  await expect.poll(() => connectionOf(busy.socket).bytesRead).toBe(before + 4);
  const lost = new Promise((resolve) => rig.accepted[0]?.once("close", resolve));
  rotateToken(runFolder(rig.home));
  await rig.gateway.reloadToken();
  raw.write(Buffer.from([3, 4, 0x82, 1, 9]));
  expect(await idle.closed).toEqual({ code: 4401, reason: "token replaced" });
  expect(await busy.closed).toEqual({ code: 4401, reason: "token replaced" });
  expect(busy.messages).toEqual([Buffer.from([1, 2, 3, 4])]);
  await lost;
  expect((await open(rig, STREAM, { protocols: [PROTOCOL], token: old }).refusal)?.status).toBe(401);
  expect(await open(rig, STREAM, { protocols: [PROTOCOL], token: rig.token() }).refusal).toBeNull();
});

test("without a signal too, open WebSockets end soon after the file was replaced", async () => {
  const rig = await startWithSockets();
  const client = open(rig, STREAM, { protocols: [PROTOCOL], token: rig.token() });
  expect(await client.refusal).toBeNull();
  writeFileSync(tokenPath(runFolder(rig.home)), "not a token");
  expect((await client.closed).code).toBe(4401);
});

test("after the token was replaced nothing that the client still sends reaches the service", async () => {
  const rig = await startWithSockets();
  const client = open(rig, STREAM, { protocols: [PROTOCOL], token: rig.token() });
  expect(await client.refusal).toBeNull();
  const got: string[] = [];
  rig.accepted[0]?.removeAllListeners("message").on("message", (data) => got.push(String(data)));
  // The service is in the middle of a frame, so that the close cannot be said yet.
  const before = connectionOf(client.socket).bytesRead;
  connectionOf(rig.accepted[0]).write(Buffer.from([0x82, 4, 1]));
  await expect.poll(() => connectionOf(client.socket).bytesRead).toBe(before + 3);
  client.socket.send("before");
  await expect.poll(() => got).toEqual(["before"]);
  rotateToken(runFolder(rig.home));
  await rig.gateway.reloadToken();
  client.socket.send("after");
  expect((await client.closed).code).toBe(1006);
  expect(got).toEqual(["before"]);
});

test("more WebSockets than the limit are refused, and an ended one makes room", async () => {
  const rig = await startWithSockets();
  const options = { protocols: [PROTOCOL], token: rig.token() };
  const many = Array.from({ length: WEBSOCKET_LIMITS.openMax }, () => open(rig, STREAM, options));
  for (const client of many) expect(await client.refusal).toBeNull();
  const refused = await open(rig, STREAM, options).refusal;
  expect(refused?.status).toBe(429);
  expect(refused?.text).toContain('"kind":"quota"');
  many[0]?.socket.terminate();
  await expect.poll(async () => (await open(rig, STREAM, options).refusal)?.status).toBeUndefined();
});

test("a WebSocket that finds the service away is 502, and one it refuses carries its reason", async () => {
  const rig = await startWithUpstream();
  const options = { protocols: [PROTOCOL], token: rig.token() };
  rig.upstream.onUpgrade = (_request, socket) => {
    const text = '{"error":{"kind":"vm_not_found","reason":"Cannot find it"}}';
    socket.end(`HTTP/1.1 404 Refused\r\nContent-Length: ${text.length}\r\nConnection: close\r\n\r\n${text}`);
  };
  const missing = await open(rig, STREAM, options).refusal;
  expect(missing).toMatchObject({ status: 404 });
  expect(missing?.text).toContain('"reason":"Cannot find it"');
  rig.upstream.onUpgrade = (_request, socket) => socket.destroy();
  expect((await open(rig, STREAM, options).refusal)?.status).toBe(502);
  await rig.upstream.close();
  const away = await open(rig, STREAM, options).refusal;
  expect(away).toMatchObject({ status: 502 });
  expect(away?.text).toContain('"kind":"service_away"');
});

test("a side that does not read holds the other back instead of filling our memory", async () => {
  const rig = await startWithSockets();
  const client = open(rig, STREAM, { protocols: [PROTOCOL], token: rig.token() });
  expect(await client.refusal).toBeNull();
  client.socket.pause();
  const [service] = rig.accepted;
  const chunk = Buffer.alloc(1024 * 1024, 7);
  for (let count = 0; count < 64; count++) service?.send(chunk);
  // The sender's queue stays where it is: what left it is in buffers of fixed size.
  await expect.poll(() => service?.bufferedAmount ?? 0, { timeout: 5_000 }).toBeGreaterThan(40 * 1024 * 1024);
  let last = -1;
  await expect
    .poll(() => {
      const isStill = service?.bufferedAmount === last;
      last = service?.bufferedAmount ?? 0;
      return isStill;
    })
    .toBe(true);
  expect(last).toBeGreaterThan(40 * 1024 * 1024);
  client.socket.resume();
  await expect.poll(() => client.messages.length, { timeout: 20_000 }).toBe(64);
  for (const message of client.messages) expect(message.equals(chunk)).toBe(true);
});

test("a job of a real service runs over capsem.stream.v1", async () => {
  const service = await serviceWith();
  const created = await service.client.post("/vms/create", {});
  const { id } = created.json<{ id: string }>();
  const rig = await start({ home: service.layout.home });
  const client = open(rig, `/vms/${id}/stream`, { protocols: [PROTOCOL, `capsem.token.${rig.token()}`] });
  expect(await client.refusal).toBeNull();
  const plan = { type: "start", kind: "exec", command: "head -c 3000000 /dev/zero; exit 4" };
  client.socket.send(Buffer.concat([Buffer.of(3), Buffer.from(JSON.stringify(plan))]));
  expect((await client.closed).code).toBe(1000);
  const output = client.messages
    .filter(([kind]) => kind === 1)
    .reduce((sum, { length }) => sum + length - 1, 0);
  expect(output).toBe(3_000_000);
  const said = client.messages.filter(([kind]) => kind === 4).map((one) => one.subarray(1).toString());
  expect(said.join("\n")).toContain('"exit_code":4');
  const missing = open(rig, "/vms/vm_aaaaaaaaaaaaaaaa/stream", { protocols: [PROTOCOL], token: rig.token() });
  expect((await missing.refusal)?.status).toBe(404);
});

test("the events of a real service come through", async () => {
  const service = await serviceWith();
  const rig = await start({ home: service.layout.home });
  const client = open(rig, "/events", { protocols: ["capsem.events.v1"], token: rig.token() });
  expect(await client.refusal).toBeNull();
  await expect.poll(() => client.messages.map(String).join("\n"), { timeout: 10_000 }).toContain('"hello"');
});
