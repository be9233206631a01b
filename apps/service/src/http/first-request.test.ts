import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { HTTP_LIMITS } from "../limits.ts";
import { limitFirstRequest } from "./first-request.ts";
import { type Handlers, json } from "./handler.ts";
import { type ApiServer, createApiServer } from "./server.ts";

const PLACES = 4;
const { headersTimeoutMs } = HTTP_LIMITS;
let folder = "";
let path = "";
let sockets: Socket[] = [];
let server: ApiServer;

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  folder = mkdtempSync(join(tmpdir(), "capsem-first-"));
  path = join(folder, "s");
  server = createApiServer(
    {
      handlers: { health: async () => json({ ok: true }) } as unknown as Handlers,
      act: (_context, _event, work) => work(),
      checksAnswers: true,
      random: (bytes) => new Uint8Array(bytes),
    },
    { kind: "user", name: "uid 1000" },
  );
  server.http.maxConnections = PLACES;
  server.http.listen(path);
  await once(server.http, "listening");
});
afterEach(async () => {
  vi.useRealTimers();
  for (const socket of sockets) socket.destroy();
  sockets = [];
  await server.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Connected, and known to the server. */
async function open(): Promise<Socket> {
  const socket = connect(path);
  // What is dropped may be reset while it writes.
  socket.on("error", () => undefined);
  sockets.push(socket);
  await Promise.all([once(socket, "connect"), once(server.http, "connection")]);
  return socket;
}

const REQUEST = "GET /health HTTP/1.1\r\nHost: capsem\r\n\r\n";

/** Reset or ended, which `once` would tell apart. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once("close", () => resolve());
  });
}

/** What it is answered; "" when it is closed instead. */
async function ask(socket: Socket): Promise<string> {
  const gone = closed(socket).then(() => "");
  const answered = new Promise<string>((resolve) => {
    socket.once("data", (bytes) => resolve(String(bytes)));
  });
  socket.write(REQUEST);
  return (await Promise.race([answered, gone])).split("\r\n")[0] ?? "";
}

/** Somebody for whom there may be no place. */
async function visit(): Promise<string> {
  const socket = connect(path);
  socket.on("error", () => undefined);
  sockets.push(socket);
  return ask(socket);
}

test("connections that say nothing take all places, for as long as a head may take and no longer", async () => {
  const idle = [];
  for (let place = 0; place < PLACES; place += 1) idle.push(await open());
  expect(await visit()).toBe("");
  vi.advanceTimersByTime(headersTimeoutMs - 1);
  expect(await visit()).toBe("");
  const gone = Promise.all(idle.map(closed));
  vi.advanceTimersByTime(1);
  await gone;
  expect(await visit()).toBe("HTTP/1.1 200 OK");
});

test("so does half a head", async () => {
  const socket = await open();
  const gone = closed(socket);
  socket.write(REQUEST.slice(0, 20));
  vi.advanceTimersByTime(headersTimeoutMs);
  await gone;
});

test("a connection that has asked once is kept between its requests as before", async () => {
  const socket = await open();
  expect(await ask(socket)).toBe("HTTP/1.1 200 OK");
  vi.advanceTimersByTime(headersTimeoutMs * 3);
  expect(await ask(socket)).toBe("HTTP/1.1 200 OK");
});

test.each([
  {
    how: "expects to be told to go on",
    head: "GET /health HTTP/1.1\r\nHost: c\r\nExpect: 100-continue\r\n\r\n",
  },
  {
    how: "asks for a WebSocket",
    head: "GET / HTTP/1.1\r\nHost: c\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
  },
])("one that $how has sent its first request", async ({ head }) => {
  const http = createServer();
  limitFirstRequest(http, headersTimeoutMs);
  const other = join(folder, "other");
  http.on("checkContinue", () => undefined).on("upgrade", () => undefined);
  http.listen(other);
  await once(http, "listening");
  const socket = connect(other);
  sockets.push(socket);
  const came = Promise.race([once(http, "checkContinue"), once(http, "upgrade")]);
  const [accepted] = (await Promise.all([once(http, "connection"), socket.write(head)]))[0] as [Socket];
  await came;
  vi.advanceTimersByTime(headersTimeoutMs * 2);
  expect(accepted.destroyed).toBe(false);
  accepted.destroy();
  http.close();
});

test("a socket that was handed over is limited like one that was taken", async () => {
  const handed = createServer();
  limitFirstRequest(handed, headersTimeoutMs);
  const socket = await open();
  handed.emit("connection", socket);
  const gone = closed(socket);
  vi.advanceTimersByTime(headersTimeoutMs);
  await gone;
});
