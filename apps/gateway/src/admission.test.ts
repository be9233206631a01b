import { request as httpRequest } from "node:http";
import { join } from "node:path";
import { ROUTES, type RouteName } from "@capsem/api";
import { expect, test } from "vitest";
import { runFolder } from "./home-folders.ts";
import { answerOf, httpClient, readReply } from "./testing/http-client.ts";
import { requestText, sendRaw } from "./testing/raw-client.ts";
import { samplePath } from "./testing/sample-path.ts";
import { useGateways } from "./testing/use-gateways.ts";
import { SUBPROTOCOLS } from "./websocket-table.ts";

const { startWithUpstream } = useGateways();
const ID = "vm_abcdefghij234567";
const WRONG = "A".repeat(64);

test("every route of the table passes with the token and is 401 without, but for health", async () => {
  const { client, port, upstream } = await startWithUpstream();
  const anyone = httpClient(port, null);
  let failures = 0;
  for (const name of Object.keys(ROUTES) as RouteName[]) {
    const route: (typeof ROUTES)[RouteName] = ROUTES[name];
    if (route.request === "websocket") continue;
    const path = samplePath(route);
    const before = upstream.calls.length;
    expect((await client.call(route.method, path)).status, name).toBe(200);
    expect(upstream.calls.length, name).toBe(before + 1);
    const isOpen = "isOpen" in route;
    const reply = await anyone.call(route.method, path);
    const expected = isOpen ? 200 : failures < 20 ? 401 : 429;
    if (!isOpen) failures += 1;
    expect(reply.status, name).toBe(expected);
    expect(upstream.calls.length, name).toBe(before + 1 + (isOpen ? 1 : 0));
  }
});

test("every WebSocket route has a subprotocol", () => {
  const names = Object.entries(ROUTES).filter(([, { request }]) => request === "websocket");
  expect(Object.keys(SUBPROTOCOLS).sort()).toEqual(names.map(([name]) => name).sort());
});

const CREDENTIALS: readonly (readonly [string, (token: string) => string | string[]])[] = [
  ["a wrong token", () => `Bearer ${WRONG}`],
  ["an empty header", () => ""],
  ["the scheme alone", () => "Bearer"],
  ["the scheme and a space", () => "Bearer "],
  ["Basic", (token) => `Basic ${Buffer.from(`user:${token}`).toString("base64")}`],
  ["Basic with the token", (token) => `Basic ${token}`],
  ["the scheme in lower case", (token) => `bearer ${token}`],
  ["the scheme in upper case", (token) => `BEARER ${token}`],
  ["no scheme", (token) => token],
  ["two spaces", (token) => `Bearer  ${token}`],
  ["a comma and more", (token) => `Bearer ${token}, Bearer ${token}`],
  ["a token cut short", (token) => `Bearer ${token.slice(0, 63)}`],
  ["a token and one more", (token) => `Bearer ${token}x`],
  ["the token in lower case", (token) => `Bearer ${token.toLowerCase()}`],
  ["the right header twice", (token) => [`Bearer ${token}`, `Bearer ${token}`]],
  ["a right and a wrong header", (token) => [`Bearer ${token}`, `Bearer ${WRONG}`]],
];

test.each(CREDENTIALS)("%s is 401 and no call", async (_name, make) => {
  const { port, token, upstream } = await startWithUpstream();
  const headers = { host: `127.0.0.1:${port}`, authorization: make(token()), connection: "close" };
  const [reply] = await sendRaw(port, requestText("GET /status HTTP/1.1", headers));
  expect(reply).toMatchObject({ status: 401, kind: "unauthorized" });
  expect(reply?.text).toContain("www-authenticate: Bearer");
  expect(upstream.calls).toEqual([]);
});

test("a token in the query is none", async () => {
  const { port, token, upstream } = await startWithUpstream();
  const anyone = httpClient(port, null);
  for (const query of [`token=${token()}`, `authorization=Bearer%20${token()}`, `access_token=${token()}`]) {
    expect((await anyone.get(`/status?${query}`)).status).toBe(401);
  }
  expect(upstream.calls).toEqual([]);
});

test("failures above twenty in a minute are throttled, a right token never, and time heals", async () => {
  const { port, client, advance, log } = await startWithUpstream();
  const wrong = httpClient(port, WRONG);
  for (let count = 0; count < 20; count++) expect((await wrong.get("/status")).status).toBe(401);
  const throttled = await wrong.get("/status");
  expect(throttled).toMatchObject({ status: 429, kind: "throttled" });
  expect(Number(throttled.headers["retry-after"])).toBeGreaterThan(0);
  expect(Number(throttled.headers["retry-after"])).toBeLessThanOrEqual(60);
  for (let count = 0; count < 30; count++) expect((await client.get("/status")).status).toBe(200);
  expect((await wrong.get("/status")).status).toBe(429);
  advance(60_000);
  expect((await wrong.get("/status")).status).toBe(401);
  const lines = log.filter(({ message }) => String(message).startsWith("authentication"));
  expect(lines.map(({ message }) => message)).toEqual([
    "authentication failed",
    "authentication throttled",
    "authentication failures",
    "authentication failed",
  ]);
  expect(lines[2]).toMatchObject({ failures: 22 });
});

test.each([
  ["evil.example", "another name"],
  ["evil.example:PORT", "another name and our port"],
  ["127.0.0.1.nip.io:PORT", "a look-alike"],
  ["localhost.evil.example:PORT", "a look-alike of localhost"],
  ["127.0.0.1", "no port"],
  ["127.0.0.1:1", "another port"],
  ["127.0.0.2:PORT", "another loopback address"],
  ["[::]:PORT", "any address"],
  ["0.0.0.0:PORT", "any address of IPv4"],
  ["2130706433:PORT", "the address as a number"],
  ["LOCALHOST:PORT", "upper case"],
  ["localhost.:PORT", "a trailing dot"],
  ["user@127.0.0.1:PORT", "a user"],
  ["", "nothing"],
])("Host %s is refused (%s), though the service behind would answer it", async (host) => {
  const { port, home, token, upstream } = await startWithUpstream();
  const value = host.replace("PORT", String(port));
  const headers = { host: value, authorization: `Bearer ${token()}` };
  const socketPath = join(runFolder(home), "service.sock");
  const direct = httpRequest({ socketPath, path: "/status", headers, agent: false }).end();
  expect((await readReply(await answerOf(direct))).status).toBe(200);
  upstream.calls.length = 0;

  const [reply] = await sendRaw(port, requestText("GET /status HTTP/1.1", headers));
  expect(reply).toMatchObject({ status: 403, kind: "origin_refused" });
  expect(upstream.calls).toEqual([]);
});

test("the three names of loopback are taken", async () => {
  const { client, port } = await startWithUpstream();
  for (const name of ["127.0.0.1", "localhost", "[::1]"]) {
    expect((await client.get("/status", { host: `${name}:${port}` })).status).toBe(200);
  }
});

test("a missing Host and two Hosts are refused", async () => {
  const { port, token, upstream } = await startWithUpstream();
  const authorization = `Bearer ${token()}`;
  const [missing] = await sendRaw(port, requestText("GET /status HTTP/1.1", { authorization }));
  expect(missing).toMatchObject({ status: 403, kind: "origin_refused" });
  const host = [`127.0.0.1:${port}`, "evil.example"];
  const [twice] = await sendRaw(port, requestText("GET /status HTTP/1.1", { host, authorization }));
  expect(twice).toMatchObject({ status: 400, kind: "invalid_input" });
  expect(upstream.calls).toEqual([]);
});

test.each([
  "null",
  "",
  "http://localhost.evil.com",
  "http://127.0.0.1.nip.io",
  "http://127.0.0.1.nip.io:3000",
  "https://localhost",
  "http://localhost:0",
  "http://localhost:99999",
  "http://localhost:3000/",
  "http://localhost:3000@evil.com",
  "http://user@localhost",
  "http://LOCALHOST",
  "http://127.1",
  "http://[::1",
  "http://[::ffff:127.0.0.1]",
  "file://",
  "http://localhost http://evil.com",
  "chrome-extension://localhost",
])("Origin %j is refused, with the token too", async (origin) => {
  const { client, upstream } = await startWithUpstream();
  const reply = await client.get("/status", { origin });
  expect(reply).toMatchObject({ status: 403, kind: "origin_refused" });
  expect(reply.headers["access-control-allow-origin"]).toBeUndefined();
  const preflight = await client.call("OPTIONS", "/status", {
    headers: { origin, "access-control-request-method": "GET" },
  });
  expect(preflight.status).toBe(403);
  expect(upstream.calls).toEqual([]);
});

test.each([
  "http://127.0.0.1",
  "http://127.0.0.1:5173",
  "http://localhost",
  "http://localhost:65535",
  "http://[::1]",
  "http://[::1]:8080",
])("Origin %s is answered by name, without credentials", async (origin) => {
  const { client, port } = await startWithUpstream();
  const reply = await client.get("/status", { origin });
  expect(reply.status).toBe(200);
  expect(reply.headers["access-control-allow-origin"]).toBe(origin);
  expect(reply.headers["access-control-expose-headers"]).toContain("x-capsem-size");
  expect(reply.headers.vary?.toLowerCase()).toContain("origin");
  expect(reply.headers["access-control-allow-credentials"]).toBeUndefined();
  const refusal = await httpClient(port, null).get("/status", { origin });
  expect(refusal).toMatchObject({ status: 401 });
  expect(refusal.headers["access-control-allow-origin"]).toBe(origin);
});

test("a preflight needs no token, only a page of this machine and a known route", async () => {
  const { port, upstream, token } = await startWithUpstream();
  const anyone = httpClient(port, null);
  const ask = (path: string, method: string) =>
    anyone.call("OPTIONS", path, {
      headers: {
        origin: "http://localhost:5173",
        "access-control-request-method": method,
        "access-control-request-headers":
          "authorization, content-type, traceparent, x-capsem-time-left-ms, cookie, x-evil",
      },
    });
  const reply = await ask(`/vms/${ID}/files/content`, "PUT");
  expect(reply.status).toBe(204);
  expect(reply.headers["access-control-allow-origin"]).toBe("http://localhost:5173");
  expect(reply.headers["access-control-allow-methods"]).toBe("PUT");
  expect(reply.headers["access-control-allow-headers"]).toBe(
    "authorization, content-type, traceparent, x-capsem-time-left-ms",
  );
  expect(reply.headers["access-control-allow-credentials"]).toBeUndefined();
  expect(reply.headers.vary).toContain("origin");
  expect((await ask("/nope", "GET")).status).toBe(404);
  expect((await ask("/status", "POST")).status).toBe(404);
  const headers = { authorization: `Bearer ${token()}` };
  expect((await anyone.call("OPTIONS", "/status", { headers })).status).toBe(404);
  expect(upstream.calls).toEqual([]);
});

test("without an origin no CORS header is sent, but the answer still varies by it", async () => {
  const { client } = await startWithUpstream();
  const { headers } = await client.get("/status");
  expect(Object.keys(headers).filter((name) => name.startsWith("access-control"))).toEqual([]);
  expect(headers.vary).toContain("origin");
  expect(headers).toMatchObject({ "cache-control": "no-store", "x-content-type-options": "nosniff" });
});

test("a part of the path that has another form is named, in the service's words and without its value", async () => {
  const { client, upstream } = await startWithUpstream();
  const reasonOf = async (path: string) => {
    const reply = await client.get(path);
    expect(reply.status).toBe(400);
    return (JSON.parse(reply.bytes.toString()) as { error: { reason: string } }).error.reason;
  };
  const ofId = "Cannot read the request: path: id: vm_ and 16 characters of a-z2-7";
  expect(await reasonOf("/vms/agent1/info")).toBe(ofId);
  const output = "Cannot read the request: path: job: job_ and 16 characters of a-z2-7";
  expect(await reasonOf(`/vms/${ID}/jobs/s3cret/output`)).toBe(output);
  const source =
    "Cannot read the request: path: source: one of service, gateway, owner, ledger, proxy, egress, aggregator, builtin";
  expect(await reasonOf("/host-logs/s3cret")).toBe(source);
  expect(upstream.calls).toEqual([]);
});
