import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { trustedContext } from "./certificates.ts";
import { EGRESS_LIMITS } from "./limits.ts";
import { byPolicy, dialling, failureOf, readAll, until } from "./testing/dialling.ts";
import { bodyOf, httpServer, newAuthority, rawServer, tlsServer } from "./testing/servers.ts";

test("a request goes out as it was asked, and its answer comes back byte for byte", async () => {
  const seen: unknown[] = [];
  const server = await httpServer(async (request, response) => {
    seen.push([request.method, request.url, request.rawHeaders, await bodyOf(request)]);
    response.writeHead(201, [
      "X-One",
      "a",
      "x-one",
      "b",
      "Connection",
      "keep-alive",
      "Content-Type",
      "text/x; é",
    ]);
    response.end('{ "n":1.0, "n":1e400 }\n');
  });
  const { fetch } = dialling();
  const { head, body } = await fetch(`${server.url}/mcp?a=%20b#c`, {
    method: "POST",
    headers: [
      ["Accept", "application/json"],
      ["X-Twice", "1"],
      ["X-Twice", "2"],
      ["Connection", "close, X-Mine"],
      ["X-Mine", "hop"],
      ["Transfer-Encoding", "chunked"],
      ["Host", "evil.example"],
      ["Content-Length", "999"],
      ["Proxy-Authorization", "x"],
      ["Expect", "100-continue"],
    ],
    body: Buffer.from("{}"),
  });
  expect(await readAll(body)).toBe('{ "n":1.0, "n":1e400 }\n');
  expect(head.status).toBe(201);
  expect(head.headers.filter(([name]) => name !== "date")).toEqual(
    [
      ...[
        ["x-one", "a"],
        ["x-one", "b"],
        ["content-type", "text/x; é"],
      ],
      ["content-length", "23"],
    ].filter(([name]) => name !== "content-length" || head.headers.some(([each]) => each === name)),
  );
  expect(seen).toEqual([
    [
      "POST",
      "/mcp?a=%20b",
      [
        ...["host", `127.0.0.1:${server.port}`, "connection", "keep-alive", "Accept", "application/json"],
        ...["X-Twice", "1", "X-Twice", "2", "content-length", "2"],
      ],
      "{}",
    ],
  ]);
});

test("many requests of one server ask once and use one connection", async () => {
  const server = await httpServer((request, response) => response.end(request.url));
  const { fetch, asked } = dialling();
  const first = await Promise.all([1, 2, 3].map((n) => fetch(`${server.url}/${n}`)));
  expect(await Promise.all(first.map(({ body }) => readAll(body)))).toEqual(["/1", "/2", "/3"]);
  const { connections } = server;
  expect(connections).toBe(3);
  for (let n = 0; n < 50; n += 1)
    expect(await readAll((await fetch(`${server.url}/${n}`)).body)).toBe(`/${n}`);
  expect([asked.length, server.connections]).toEqual([1, connections]);
});

test("two clients, two servers and two origins never share a connection", async () => {
  const server = await httpServer((_, response) => response.end("x"));
  const [one, two] = [dialling(), dialling()];
  const say = async (from: typeof one, name: string, url = server.url) =>
    readAll((await from.fetch(url, { server: name })).body);
  await say(one, "docs");
  await say(one, "docs");
  await say(two, "docs");
  await say(one, "other");
  expect(server.connections).toBe(3);
  expect([one.asked.length, two.asked.length]).toEqual([2, 1]);
});

test("a request that rules judge is asked for each time, and leaves no connection behind", async () => {
  const server = await httpServer((_, response) => response.end("page"));
  const { fetch, asked, ends } = dialling();
  for (let n = 0; n < 3; n += 1) await readAll((await fetch(server.url, { server: null })).body);
  await until(() => ends.length === 3, "its ends were told");
  await until(() => server.sockets.size === 0, "its connections closed");
  expect(asked).toHaveLength(3);
  expect(ends[0]).toMatchObject({
    lease: "lease-1",
    status: 200,
    bytes_sent: 0,
    bytes_received: 4,
    error: null,
  });
});

test("what is asked for says neither cookies nor authorization", async () => {
  const server = await httpServer((request, response) => response.end(request.headers.authorization));
  const { fetch, asked } = dialling();
  const headers: [string, string][] = [
    ["Authorization", "Bearer own"],
    ["Cookie", "a=b"],
    ["accept", "x"],
  ];
  expect(await readAll((await fetch(server.url, { headers })).body)).toBe("Bearer own");
  expect(asked[0]?.headers).toEqual([
    ["Authorization", ""],
    ["Cookie", ""],
    ["accept", "x"],
  ]);
});

test("a lent header takes the place of the caller's, and its secret never comes back", async () => {
  const secret = "sk-canary-0123456789";
  const server = await httpServer((request, response) => {
    const { authorization = "", "accept-encoding": encoding = "" } = request.headers;
    response.setHeader("x-echo", authorization);
    response.write(`{"you sent":"${authorization.slice(0, 12)}`);
    // In two writes: the secret is cut where the network likes.
    setTimeout(
      () => response.end(`${authorization.slice(12)}","encoding":"${encoding}","begins":"sk-can`),
      30,
    );
  });
  const { fetch, ends } = dialling({
    admit: () => ({ headers: [["Authorization", `Bearer ${secret}`]], secrets: [secret] }),
  });
  const headers: [string, string][] = [
    ["authorization", "Bearer forged"],
    ["Accept-Encoding", "gzip"],
  ];
  const { head, body } = await fetch(server.url, { headers });
  const text = await readAll(body);
  expect(text).toBe(
    `{"you sent":"Bearer ${"*".repeat(secret.length)}","encoding":"identity","begins":"sk-can`,
  );
  expect(JSON.stringify([head, text, ends])).not.toContain("canary");
});

test("no redirect is followed", async () => {
  const server = await httpServer((request, response) => {
    response.writeHead(307, { location: "http://169.254.169.254/latest/meta-data/" });
    response.end(request.url);
  });
  const { fetch, asked } = dialling();
  const { head, body } = await fetch(server.url);
  expect(head.status).toBe(307);
  expect(head.headers).toContainEqual(["location", "http://169.254.169.254/latest/meta-data/"]);
  await readAll(body);
  expect(asked).toHaveLength(1);
});

test("it dials what was admitted, whatever the name means; where nothing was admitted it dials nothing", async () => {
  const server = await httpServer((request, response) => response.end(request.headers.host));
  const { fetch } = dialling();
  // A name that no resolver knows, at the address that the service gave.
  expect(await readAll((await fetch(`http://db.example.invalid:${server.port}/`)).body)).toBe(
    `db.example.invalid:${server.port}`,
  );
  const none = dialling({ admit: () => ({ addresses: [] }) });
  expect((await failureOf(none.fetch(server.url))).kind).toBe("dns_failed");
  const other = dialling({ admit: () => ({ addresses: ["127.0.0.2"] }) });
  expect((await failureOf(other.fetch(server.url))).kind).toBe("dns_failed");
  expect(server.connections).toBe(1);
});

test("this machine is dialled only without the gate, or with a grant", async () => {
  const server = await httpServer((_, response) => response.end("inside"));
  const open = dialling();
  expect(await readAll((await open.fetch(server.url)).body)).toBe("inside");
  const { connections } = server;
  const gated = dialling({ admit: byPolicy([]) });
  for (const host of ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]"]) {
    expect((await failureOf(gated.fetch(`http://${host}:${server.port}/`))).kind).toBe("policy");
  }
  expect(server.connections).toBe(connections);
  const granted = dialling({ admit: byPolicy([`127.0.0.1:${server.port}`]) });
  expect(await readAll((await granted.fetch(`http://0x7f.1:${server.port}/`)).body)).toBe("inside");
});

test("a lease that is over takes no new request, and lets the last ones end", async () => {
  let finish = () => undefined as unknown;
  const server = await httpServer((request, response) => {
    if (request.url !== "/slow") return response.end("x");
    response.write("be");
    finish = () => response.end("gun");
  });
  // The first is over soon, the other one when the test says so.
  let leaseMs = 60;
  const { fetch, asked, ends, dialler } = dialling({ admit: () => ({ lease_ms: leaseMs }) });
  const slow = await fetch(`${server.url}/slow`);
  leaseMs = 60_000;
  while (asked.length < 2) {
    await sleep(20);
    await readAll((await fetch(server.url)).body);
  }
  expect(dialler.leaseCount).toBe(2);
  finish();
  expect(await readAll(slow.body)).toBe("begun");
  await until(() => ends.length === 1, "the first lease ended");
  expect(ends.map(({ lease, error }) => [lease, error])).toEqual([["lease-1", null]]);
  expect(dialler.leaseCount).toBe(1);
  dialler.end();
  await until(() => server.sockets.size === 0, "connections closed");
});

test("what is taken back in mid-flight ends at once, and is asked for again", async () => {
  let isAsked = false;
  const server = await httpServer((request, response) => {
    if (request.url === "/stream") response.write("event: x\n\n");
    else if (request.url === "/never") isAsked = true;
    else response.end("x");
  });
  let isRefused = false;
  const { fetch, dialler, ends } = dialling({
    admit: () => {
      if (isRefused)
        return byPolicy([])({
          server: "docs",
          url: server.url,
          method: "GET",
          headers: [],
          traceId: null,
          timeoutMs: null,
        });
      return {};
    },
  });
  const stream = await fetch(`${server.url}/stream`, { timeout_ms: null });
  await stream.body.read();
  const never = failureOf(fetch(`${server.url}/never`));
  const other = await fetch(`${server.url}/stream`, { server: "other" });
  await until(() => isAsked, "the server has the request");
  isRefused = true;
  dialler.revoke("docs", "the permission for it was taken back");
  expect((await never).kind).toBe("policy");
  expect((await failureOf(readAll(stream.body))).kind).toBe("policy");
  expect((await failureOf(fetch(server.url))).kind).toBe("policy");
  await until(() => ends.length === 1, "the lease ended");
  expect(ends[0]).toMatchObject({ error: "revoked", bytes_received: 10 });
  expect(await other.body.read()).not.toBeNull();
  dialler.revoke(null, "all");
  await until(() => server.sockets.size === 0, "connections closed");
});

test("a slow reader holds its own connection, and no memory", async () => {
  let sent = 0;
  const server = await httpServer((request, response) => {
    if (request.url !== "/large") return response.end("quick");
    const block = Buffer.alloc(65_536, 7);
    const more = () => {
      while (sent < 100 * 1024 * 1024) {
        sent += block.length;
        if (!response.write(block)) return response.once("drain", more);
      }
      return response.end();
    };
    more();
  });
  const { fetch } = dialling();
  const { body } = await fetch(`${server.url}/large`);
  await body.read();
  await sleep(200);
  const held = sent;
  expect(held).toBeLessThan(20 * 1024 * 1024);
  for (let n = 0; n < 20; n += 1) expect(await readAll((await fetch(server.url)).body)).toBe("quick");
  await sleep(50);
  expect(sent - held).toBeLessThan(1024 * 1024);
  const before = process.memoryUsage().rss;
  let bytes = 0;
  let peak = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    peak = Math.max(peak, process.memoryUsage.rss());
  }
  expect(bytes).toBeGreaterThan(99 * 1024 * 1024);
  expect(sent).toBe(100 * 1024 * 1024);
  expect(peak - before).toBeLessThan(80 * 1024 * 1024);
});

test("a caller who leaves, before the head or within the body, closes its connection", async () => {
  const server = await httpServer((request, response) => {
    if (request.url === "/stream") response.write("x");
  });
  const { fetch } = dialling();
  const controller = new AbortController();
  const never = failureOf(fetch(`${server.url}/never`, {}, controller.signal));
  const { body } = await fetch(`${server.url}/stream`);
  await until(() => server.sockets.size === 2, "both are open");
  controller.abort();
  expect((await never).kind).toBe("cancelled");
  body.cancel();
  await until(() => server.sockets.size === 0, "both are closed");
});

test("time counts to the head, and not for a stream that is waited on", async () => {
  let finish = () => undefined as unknown;
  const server = await httpServer((request, response) => {
    if (request.url === "/slow-body") {
      response.write("a");
      finish = () => response.end("b");
    } else setTimeout(() => response.end("late"), 150);
  });
  const { fetch } = dialling();
  expect((await failureOf(fetch(server.url, { timeout_ms: 50 }))).kind).toBe("timeout");
  const slow = await fetch(`${server.url}/slow-body`, { timeout_ms: 1_000 });
  await sleep(1_100);
  finish();
  expect(await readAll(slow.body)).toBe("ab");
  expect(await readAll((await fetch(server.url, { timeout_ms: null })).body)).toBe("late");
});

const RUDE: readonly (readonly [string, string | null])[] = [
  ["says nothing and closes", null],
  ["speaks no HTTP", "SSH-2.0-OpenSSH_9.6\r\n"],
  ["has no end of headers", `HTTP/1.1 200 OK\r\nx: ${"y".repeat(100_000)}\r\n`],
  ["has too many headers", `HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(300)}\r\n`],
  ["has two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nab"],
  ["smuggles", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"],
  ["upgrades unasked", "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"],
];
test.each(RUDE)("a server that %s is one failed request", async (_, words) => {
  const server = await rawServer((socket) => {
    socket.once("data", () => (words === null ? socket.end() : socket.write(words)));
  });
  const { fetch } = dialling();
  const failure = await failureOf(fetch(server.url).then(({ body }) => readAll(body)));
  expect(failure.kind).toBe("upstream_failed");
  await until(() => server.sockets.size === 0, "its connection is closed");
});

test("an answer that is cut is no shorter answer", async () => {
  const server = await rawServer((socket) => {
    socket.once("data", () => {
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
      setTimeout(() => socket.destroy(), 20);
    });
  });
  const { fetch } = dialling();
  const { head, body } = await fetch(server.url);
  expect(head.status).toBe(200);
  expect((await failureOf(readAll(body))).kind).toBe("upstream_failed");
});

test("where nothing listens says so at once, and asks again for where it is", async () => {
  const server = await rawServer((socket) => socket.end());
  const url = server.url.replace(String(server.port), "1");
  const { fetch, asked, ends } = dialling();
  const failure = await failureOf(fetch(url));
  expect([failure.kind, failure.retryable]).toEqual(["connect_failed", true]);
  await until(() => ends.length === 1, "its lease ended");
  expect(ends[0]).toMatchObject({ error: "connect_failed" });
  await failureOf(fetch(url));
  expect(asked).toHaveLength(2);
});

test("a refusal is remembered for a moment, so that a client makes no flood of it", async () => {
  let nowMs = 0;
  const { fetch, asked } = dialling({ admit: byPolicy([]), nowMs: () => nowMs });
  const refused = await Promise.all(
    Array.from({ length: 50 }, () => failureOf(fetch("http://127.0.0.1:1/"))),
  );
  expect(new Set(refused.map(({ kind }) => kind))).toEqual(new Set(["policy"]));
  await failureOf(fetch("http://127.0.0.1:1/"));
  expect(asked).toHaveLength(1);
  nowMs += EGRESS_LIMITS.refusalMs;
  await failureOf(fetch("http://127.0.0.1:1/"));
  expect(asked).toHaveLength(2);
  const { refusalsMax } = EGRESS_LIMITS;
  for (let more = 1; more <= refusalsMax; more += 1) await failureOf(fetch(`http://127.0.0.1:${1 + more}/`));
  // After so many of a client the first is forgotten.
  await failureOf(fetch("http://127.0.0.1:1/"));
  expect(asked).toHaveLength(2 + refusalsMax + 1);
});

test.each([
  ["CONNECT", "https://example.com/", []],
  ["TRACE", "https://example.com/", []],
  ["get", "https://example.com/", []],
  ["GET / HTTP/1.1\r\nx:", "https://example.com/", []],
  ["GET", "https://user@example.com/", []],
  ["GET", "https://example.com/", [["a", "b\r\nhost: evil"]]],
] as const)("%s %s %j is no request, and is not asked for", async (method, url, headers) => {
  const { fetch, asked } = dialling();
  const failure = await failureOf(
    fetch(url, { method, headers: headers.map(([a, b]): [string, string] => [a, b]) }),
  );
  expect([failure.kind, asked.length]).toEqual(["invalid_input", 0]);
});

test("a certificate is verified against the name that was asked for, at the address that was admitted", async () => {
  const authority = newAuthority();
  const good = await tlsServer(authority.issue("DNS:docs.example.test,IP:127.0.0.1"), (request, response) => {
    response.end(request.headers.host);
  });
  const stranger = await tlsServer(newAuthority().issue("DNS:docs.example.test"), (_, response) =>
    response.end("x"),
  );
  const secureContext = trustedContext(authority.ca);
  const { fetch } = dialling({ secureContext });
  expect(await readAll((await fetch(`https://docs.example.test:${good.port}/`)).body)).toBe(
    `docs.example.test:${good.port}`,
  );
  expect(await readAll((await fetch(`${good.url}/`)).body)).toBe(`127.0.0.1:${good.port}`);
  const wrongName = await failureOf(fetch(`https://other.example.test:${good.port}/`));
  expect(wrongName).toMatchObject({ kind: "tls_failed" });
  expect((await failureOf(fetch(`https://docs.example.test:${stranger.port}/`))).kind).toBe("tls_failed");
  // Without the authority among those that are trusted, and where no TLS is spoken at all.
  expect((await failureOf(dialling().fetch(`${good.url}/`))).kind).toBe("tls_failed");
  const plain = await httpServer((_, response) => response.end("x"));
  expect((await failureOf(fetch(`https://127.0.0.1:${plain.port}/`))).kind).toBe("tls_failed");
});

test("of several addresses one that answers is enough", async () => {
  const server = await httpServer((_, response) => response.end("found"));
  const { fetch } = dialling({ admit: () => ({ addresses: ["127.9.9.9", "127.0.0.1"] }) });
  expect(await readAll((await fetch(`http://db.example.invalid:${server.port}/`)).body)).toBe("found");
});
