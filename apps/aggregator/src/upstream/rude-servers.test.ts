import { Failure } from "@capsem/base";
import { expect, test, vi } from "vitest";
import { UPSTREAM_LIMITS } from "../limits.ts";
import {
  type Asked,
  httpServer,
  initializeResult,
  plainHandshake,
  sendEvents,
  sendJson,
} from "../testing/http-server.ts";
import { oneServer } from "../testing/one-server.ts";

vi.setConfig({ testTimeout: 60_000 });

const words = (work: Promise<unknown>) =>
  work.then(
    () => "done",
    (thrown: Failure) => thrown.message.replace('Cannot use server "one": ', ""),
  );

test("whatever a server does at the handshake, it is the only one that fails, and it is said how", async () => {
  const table: [string, (asked: Asked) => void, string | RegExp][] = [
    [
      "500",
      ({ response }) => void response.writeHead(500).end("<html>oh</html>"),
      "it answers with HTTP 500",
    ],
    [
      "HTML",
      ({ response }) => void response.writeHead(200, { "content-type": "text/html" }).end("<p>"),
      "it answers with text/html",
    ],
    ["no JSON", ({ response }) => sendJson(response, "nonsense"), /no message/],
    [
      "another origin",
      ({ response }) => void response.writeHead(307, { location: "http://169.254.169.254/" }).end(),
      /redirects to another origin/,
    ],
    [
      "round and round",
      ({ response }) => void response.writeHead(308, { location: "/mcp" }).end(),
      "it redirects without end",
    ],
    ["401", ({ response }) => void response.writeHead(401).end(), "it answers with HTTP 401"],
    [
      "a revision of the future",
      ({ response, message }) =>
        sendJson(response, initializeResult(message, { protocolVersion: "2031-01-01" })),
      /no revision/,
    ],
    [
      "an error",
      ({ response, message }) =>
        sendJson(response, { jsonrpc: "2.0", id: message.id, error: { code: -32000, message: "go\naway" } }),
      "it refuses initialize: go away",
    ],
    [
      "a session id of control characters",
      ({ response, message }) => sendJson(response, initializeResult(message), { "mcp-session-id": "a b" }),
      /no header can hold/,
    ],
  ];
  for (const [name, serve, expected] of table) {
    const server = await httpServer(serve);
    const one = oneServer(server.url);
    const said = await words(one.call().outcome);
    if (typeof expected === "string") expect([name, said]).toEqual([name, expected]);
    else expect([name, expected.test(said), said]).toEqual([name, true, said]);
    expect(one.heard.health.at(-1)?.state).toBe("failed");
    await vi.waitFor(() => expect(one.http.openCount).toBe(0));
  }
});

test("a redirect within the origin is followed once, and remembered", async () => {
  const paths: string[] = [];
  const server = await httpServer((asked) => {
    paths.push(`${asked.request.method} ${asked.request.url}`);
    if (asked.request.url === "/mcp") return void asked.response.writeHead(307, { location: "/mcp/" }).end();
    if (plainHandshake(asked)) return;
    sendJson(asked.response, { jsonrpc: "2.0", id: asked.message.id, result: {} });
  });
  const one = oneServer(server.url, { protocol: "legacy" });
  await one.call().outcome;
  await one.call().outcome;
  expect(paths.filter((path) => path.endsWith("/mcp"))).toHaveLength(1);
});

test("a server that is not there is left alone for longer and longer, and its calls fail at once", async () => {
  let now = 0;
  const dead = await httpServer(() => undefined);
  await dead.close();
  const one = oneServer(dead.url, { now: () => now });
  expect(await words(one.call().outcome)).toBe("ECONNREFUSED");
  const asked = one.http.requests.length;
  expect(await words(one.call().outcome)).toBe("ECONNREFUSED; it is tried again in a moment");
  expect(one.http.requests.length).toBe(asked);
  const waits: number[] = [];
  for (let round = 0; round < 9; round += 1) {
    const from = now;
    const before = one.http.requests.length;
    while (one.http.requests.length === before) {
      now += 25;
      await words(one.call().outcome);
    }
    waits.push(now - from);
  }
  expect(waits).toEqual([...waits].sort((a, b) => a - b));
  expect([waits[0], waits.at(-1)]).toEqual([200, 22_500]);
  expect(one.heard.health).toContainEqual({ state: "failed", error: "ECONNREFUSED" });
  const port = Number(new URL(dead.url).port);
  await httpServer((each) => {
    if (!plainHandshake(each)) sendJson(each.response, { jsonrpc: "2.0", id: each.message.id, result: {} });
  }, port);
  now += 60_000;
  expect(await words(one.call().outcome)).toBe("done");
  expect(one.heard.health.at(-1)).toEqual({ state: "ok", error: null });
});

/** A server whose call of this name does as it likes; `echo` is answered. */
async function rudeServer(rude: (asked: Asked) => void) {
  return httpServer((asked) => {
    if (plainHandshake(asked)) return;
    if (asked.message.params?.name === "rude") return rude(asked);
    sendJson(asked.response, { jsonrpc: "2.0", id: asked.message.id, result: {} });
  });
}

/** Writes until it cannot any more. */
function pour({ response }: Asked, chunk: Buffer): void {
  const more = () => {
    while (!response.destroyed && response.write(chunk));
  };
  response.on("drain", more);
  more();
}

test("a server that sends a hundred megabytes, or comments without end, is cut, and its other calls go on", async () => {
  const table: [string, (asked: Asked) => void, RegExp][] = [
    [
      "JSON without end",
      (asked) => {
        asked.response.writeHead(200, { "content-type": "application/json" });
        pour(asked, Buffer.alloc(65_536, " "));
      },
      /more than 16777216 bytes/,
    ],
    [
      "a line without end",
      (asked) => {
        sendEvents(asked.response).raw("data: ");
        pour(asked, Buffer.alloc(65_536, "x"));
      },
      /more than 16777216 bytes/,
    ],
    [
      "comments without end",
      (asked) => {
        sendEvents(asked.response);
        pour(asked, Buffer.from(": keep\n\n".repeat(1_000)));
      },
      /without events/,
    ],
    [
      "a comment without end",
      (asked) => {
        sendEvents(asked.response).raw(":");
        pour(asked, Buffer.alloc(65_536, "x"));
      },
      /without events/,
    ],
    [
      "empty events without end",
      (asked) => {
        sendEvents(asked.response);
        pour(asked, Buffer.from("data:\n\n".repeat(1_000)));
      },
      /without events/,
    ],
    [
      "messages without end",
      (asked) => {
        sendEvents(asked.response);
        const message = {
          jsonrpc: "2.0",
          method: "notifications/message",
          params: { data: "x".repeat(100_000) },
        };
        pour(asked, Buffer.from(`data: ${JSON.stringify(message)}\n\n`));
      },
      /too much in the course of one call/,
    ],
  ];
  for (const [name, rude, expected] of table) {
    const server = await rudeServer(rude);
    const one = oneServer(server.url);
    const failed = words(one.call({ params: { name: "rude" }, timeoutMs: 50_000 }).outcome);
    const fine = await words(one.call().outcome);
    const said = await failed;
    expect([name, fine, expected.test(said), said]).toEqual([name, "done", true, said]);
    await vi.waitFor(() => expect(one.upstream.load).toEqual({ calls: 0, bytes: 0 }));
    await server.close();
  }
});

test("a stream of nobody's that says too much is cut and comes later", async () => {
  const listens = vi.fn();
  const server = await httpServer((asked) => {
    if (asked.request.method === "GET") {
      listens();
      sendEvents(asked.response);
      return pour(asked, Buffer.from(": keep\n\n".repeat(1_000)));
    }
    if (plainHandshake(asked)) return;
    sendJson(asked.response, { jsonrpc: "2.0", id: asked.message.id, result: {} });
  });
  const one = oneServer(server.url, { protocol: "legacy" });
  await one.call().outcome;
  await vi.waitFor(() => expect(one.http.openCount).toBe(0), 10_000);
  expect(listens).toHaveBeenCalledTimes(1);
  expect(await words(one.call().outcome)).toBe("done");
});

test("a silent server holds no more calls than it may, and others of it fail by name", async () => {
  const server = await rudeServer(() => undefined);
  const one = oneServer(server.url);
  await one.call().outcome;
  const caller = new AbortController();
  const count = UPSTREAM_LIMITS.callsMax + UPSTREAM_LIMITS.callsWaitingMax;
  const held = Array.from({ length: count }, () =>
    one.call({ params: { name: "rude" }, signal: caller.signal }),
  );
  expect(await words(one.call().outcome)).toBe("too many calls wait for it");
  caller.abort();
  await Promise.allSettled(held.map(({ outcome }) => outcome));
  await vi.waitFor(() => expect(one.upstream.load.calls).toBe(0), 5_000);
  expect(await words(one.call().outcome)).toBe("done");
});

test("a thousand calls that nobody waits for leave nothing behind", async () => {
  const server = await rudeServer(({ response }) => void sendEvents(response).raw(": on it\n\n"));
  const one = oneServer(server.url);
  await one.call().outcome;
  for (let round = 0; round < 20; round += 1) {
    const caller = new AbortController();
    const calls = Array.from({ length: 50 }, () =>
      one.call({ params: { name: "rude" }, signal: caller.signal }),
    );
    await new Promise((done) => setTimeout(done, 5));
    caller.abort();
    const ends = await Promise.allSettled(calls.map(({ outcome }) => outcome));
    expect(ends.every((end) => end.status === "rejected" && end.reason instanceof Failure)).toBe(true);
  }
  await vi.waitFor(
    () => expect([one.upstream.load, one.http.openCount]).toEqual([{ calls: 0, bytes: 0 }, 0]),
    10_000,
  );
  expect(await words(one.call().outcome)).toBe("done");
});
