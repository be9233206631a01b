import type { IncomingMessage, ServerResponse } from "node:http";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { HTTP_LIMITS } from "./limits.ts";
import { startUpstream } from "./testing/fake-upstream.ts";
import { answerOf, httpClient, readReply } from "./testing/http-client.ts";
import { requestText, sendRaw } from "./testing/raw-client.ts";
import { useGateways } from "./testing/use-gateways.ts";

const { start, startWithUpstream } = useGateways();
const ID = "vm_abcdefghij234567";
const FILE = `/vms/${ID}/files/content?path=a`;

/** Answers with the number of bytes that came. */
function countBody(request: IncomingMessage, response: ServerResponse): void {
  let bytes = 0;
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
  });
  request.on("end", () => response.end(JSON.stringify({ bytes })));
}

test("a JSON body at the limit passes and one byte more is 413, with a length and in chunks", async () => {
  const { client, upstream } = await startWithUpstream();
  upstream.onRequest = countBody;
  const fits = Buffer.alloc(HTTP_LIMITS.bodyBytesMax, 32);
  const tooLarge = Buffer.alloc(HTTP_LIMITS.bodyBytesMax + 1, 32);
  const chunked = { "transfer-encoding": "chunked" };
  for (const headers of [{}, chunked]) {
    const passed = await client.call("POST", "/vms/create", { body: fits, headers });
    expect(JSON.parse(passed.bytes.toString())).toEqual({ bytes: fits.length });
  }
  const before = upstream.calls.length;
  const declared = await client.call("POST", "/vms/create", { body: tooLarge });
  expect(declared).toMatchObject({ status: 413, kind: "too_large" });
  expect(upstream.calls.length).toBe(before);
  let ends = 0;
  upstream.onRequest = (request) => {
    request.resume().on("end", () => {
      ends += 1;
    });
  };
  const counted = await client.call("POST", "/vms/create", { body: tooLarge, headers: chunked });
  expect(counted).toMatchObject({ status: 413, kind: "too_large" });
  expect(ends).toBe(0);
});

test("an upload above the limit of JSON passes, since it streams", async () => {
  const { client, upstream } = await startWithUpstream();
  upstream.onRequest = countBody;
  const body = Buffer.alloc(HTTP_LIMITS.bodyBytesMax + 1);
  for (const headers of [{}, { "transfer-encoding": "chunked" }]) {
    const reply = await client.call("PUT", FILE, { body, headers });
    expect(JSON.parse(reply.bytes.toString())).toEqual({ bytes: body.length });
  }
});

test("an expectation is met only when the request is admitted", async () => {
  const { client, upstream, port } = await startWithUpstream();
  upstream.onRequest = countBody;
  const send = (begun: ReturnType<typeof client.begin>) =>
    new Promise<{ continued: boolean; status: number }>((resolve, reject) => {
      let continued = false;
      begun.on("continue", () => {
        continued = true;
        begun.end("{}");
      });
      begun.on("response", (answer) => {
        answer.resume();
        resolve({ continued, status: answer.statusCode ?? 0 });
      });
      begun.on("error", reject);
      begun.flushHeaders();
    });
  const headers = { expect: "100-continue", "content-length": "2" };
  expect(await send(client.begin("POST", "/vms/create", { headers }))).toEqual({
    continued: true,
    status: 200,
  });
  const anyone = httpClient(port, null);
  expect(await send(anyone.begin("POST", "/vms/create", { headers }))).toEqual({
    continued: false,
    status: 401,
  });
  const large = { ...headers, "content-length": String(HTTP_LIMITS.bodyBytesMax + 1) };
  expect(await send(client.begin("POST", "/vms/create", { headers: large }))).toEqual({
    continued: false,
    status: 413,
  });
});

test("an answer's status, type and own headers come through, its connection's headers do not", async () => {
  const { client, upstream } = await startWithUpstream();
  upstream.onRequest = (_request, response) => {
    response.writeHead(404, {
      "content-type": "application/json",
      "x-capsem-size": "12",
      "retry-after": "3",
      "set-cookie": "a=b",
      server: "x",
      "access-control-allow-origin": "*",
    });
    response.end('{"error":{"kind":"file_not_found"}}');
  };
  const reply = await client.get(FILE, { origin: "http://localhost:1" });
  expect(reply).toMatchObject({ status: 404, kind: "file_not_found" });
  expect(reply.headers).toMatchObject({ "x-capsem-size": "12", "retry-after": "3" });
  expect(reply.headers["access-control-allow-origin"]).toBe("http://localhost:1");
  expect(reply.headers).not.toHaveProperty("set-cookie");
  expect(reply.headers).not.toHaveProperty("server");
});

test("an answer that stays open is passed on piece by piece", async () => {
  const { client, upstream } = await startWithUpstream();
  const held: ServerResponse[] = [];
  upstream.onRequest = (_request, response) => {
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.write('{"line":1}\n');
    held.push(response);
  };
  const outgoing = client.begin("POST", "/vms/create?hold=true");
  outgoing.end("{}");
  const pieces = (await answerOf(outgoing))[Symbol.asyncIterator]();
  expect(String((await pieces.next()).value)).toBe('{"line":1}\n');
  held[0]?.write('{"line":2}\n');
  expect(String((await pieces.next()).value)).toBe('{"line":2}\n');
  held[0]?.end();
  expect((await pieces.next()).done).toBe(true);
});

test.each([
  ["with a length", { "content-length": "100" }],
  ["in chunks", {}],
])("an answer that is cut by the service is cut for the client (%s)", async (_name, headers) => {
  const { client, upstream } = await startWithUpstream();
  upstream.onRequest = (_request, response) => {
    response.writeHead(200, headers);
    response.write("part");
    setImmediate(() => response.destroy());
  };
  await expect(client.get(FILE)).rejects.toThrow();
});

test("a client that leaves while it waits, reads or sends aborts the service's request", async () => {
  const { client, upstream, log } = await startWithUpstream();
  // The connection that is kept from here on is the one that the reader's leaving cuts.
  expect((await client.get("/status")).status).toBe(200);
  const began = (answers: boolean) =>
    new Promise<{ cut: Promise<void> }>((resolve) => {
      upstream.onRequest = (request, response) => {
        request.resume();
        if (answers) response.writeHead(200).write("part");
        const cut = new Promise<void>((done) => response.once("close", done));
        resolve({ cut });
      };
    });
  for (const [method, path, answers] of [
    ["POST", "/vms/create", false],
    ["GET", "/status", false],
    ["GET", FILE, true],
    ["PUT", FILE, false],
  ] as const) {
    const reached = began(answers);
    const outgoing = client.begin(
      method,
      path,
      method === "GET" ? {} : { headers: { "content-length": "9" } },
    );
    outgoing.on("error", () => undefined);
    if (method === "PUT") outgoing.write("abc");
    else outgoing.end(method === "GET" ? undefined : "{1234567}");
    const { cut } = await reached;
    outgoing.destroy();
    await cut;
  }
  expect(log.map(({ message }) => message)).toEqual(["started"]);
});

test("a client that leaves before the service is reached costs no call that goes on", async () => {
  const { client, upstream } = await startWithUpstream();
  let open = 0;
  upstream.http.on("connection", (socket) => {
    open += 1;
    socket.on("close", () => {
      open -= 1;
    });
  });
  for (let count = 0; count < 20; count++) {
    const outgoing = client.begin("POST", "/vms/create");
    outgoing.on("error", () => undefined);
    outgoing.end("{}");
    setImmediate(() => outgoing.destroy());
  }
  expect((await client.get("/status")).status).toBe(200);
  await expect.poll(() => open).toBeLessThanOrEqual(1);
});

test("a refusal in the middle of an upload reaches the client", async () => {
  const { client, upstream } = await startWithUpstream();
  upstream.onRequest = (request, response) => {
    request.once("data", () => {
      const text = '{"error":{"kind":"wrong_state"}}';
      response.writeHead(409, { connection: "close", "content-length": text.length }).write(text);
      request.on("end", () => response.end()).on("aborted", () => response.end());
    });
  };
  const reply = await client.call("PUT", FILE, { body: Buffer.alloc(8 * 1024 * 1024) });
  expect(reply).toMatchObject({ status: 409, kind: "wrong_state" });
});

test("while the service is away it is 502 at once, and it recovers without a restart", async () => {
  const rig = await start();
  const { client, home, log } = rig;
  for (const method of ["GET", "GET"]) {
    const reply = await client.call(method, "/status");
    expect(reply).toMatchObject({ status: 502, kind: "service_away" });
    expect(reply.bytes.toString()).not.toMatch(/ENOENT|ECONN|sock|errno/i);
  }
  const create = await client.call("POST", "/vms/create", { body: "{}" });
  expect(create).toMatchObject({ status: 502, kind: "service_away" });
  expect(JSON.parse(create.bytes.toString())).toMatchObject({ error: { retryable: true } });
  const first = await startUpstream(`${home}/run/service.sock`);
  expect((await client.get("/status")).status).toBe(200);
  await first.close();
  expect((await client.get("/status")).status).toBe(502);
  const second = await startUpstream(`${home}/run/service.sock`);
  expect((await client.get("/status")).status).toBe(200);
  await second.close();
  expect(log.map(({ message }) => message)).toEqual([
    "started",
    "service away",
    "service back",
    "service away",
    "service back",
  ]);
});

test("a read is tried again when its kept connection turns out closed; a mutation never shares one", async () => {
  const { client, upstream } = await startWithUpstream();
  const connections: unknown[] = [];
  let answered = 0;
  upstream.http.on("connection", (socket) => connections.push(socket));
  const answer = upstream.onRequest;
  upstream.onRequest = (request, response) => {
    answered += 1;
    // The second request on the kept connection is cut without an answer, as by a service that just closed it.
    if (answered === 2) request.socket.destroy();
    else answer(request, response);
  };
  expect((await client.get("/status")).status).toBe(200);
  expect((await client.get("/status")).status).toBe(200);
  expect(answered).toBe(3);
  expect(connections).toHaveLength(2);
  const before = connections.length;
  for (let count = 0; count < 3; count++) {
    expect((await client.call("POST", `/vms/${ID}/stop`)).status).toBe(200);
  }
  expect(connections).toHaveLength(before + 3);
});

test("a read on a fresh connection and a mutation are never sent twice, and a lost mutation is not retryable", async () => {
  const { client, upstream } = await startWithUpstream();
  upstream.onRequest = (request) => request.socket.destroy();
  const read = await client.get("/status");
  expect(read).toMatchObject({ status: 502, kind: "service_away" });
  expect(upstream.calls).toHaveLength(1);
  const lost = await client.call("POST", `/vms/${ID}/stop`);
  expect(lost).toMatchObject({ status: 502, kind: "service_away" });
  expect(JSON.parse(lost.bytes.toString())).toMatchObject({ error: { retryable: false } });
  expect(upstream.calls).toHaveLength(2);
});

test("a body whose chunks break in the middle aborts the service's request and is answered", async () => {
  const { port, token, upstream } = await startWithUpstream();
  const cut = new Promise<void>((resolve) => {
    upstream.onRequest = (request, response) => {
      request.resume();
      response.once("close", resolve);
    };
  });
  const headers = {
    host: `127.0.0.1:${port}`,
    authorization: `Bearer ${token()}`,
    "transfer-encoding": "chunked",
  };
  const socket = connect({ host: "127.0.0.1", port });
  let text = "";
  socket.on("data", (chunk) => {
    text += String(chunk);
  });
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.write(requestText("POST /vms/create HTTP/1.1", headers, "1\r\n{\r\n"));
  await expect.poll(() => upstream.calls.length).toBe(1);
  socket.write("zz\r\n");
  await closed;
  expect(text).toContain('"kind":"invalid_input"');
  await cut;
});

test("requests of many clients at once each get their own answer", async () => {
  const { client, upstream } = await startWithUpstream();
  upstream.onRequest = (request, response) => {
    request.resume();
    setImmediate(() => response.end(JSON.stringify({ target: request.url })));
  };
  const replies = await Promise.all(
    Array.from({ length: 150 }, (_value, index) => client.get(`/status?n=${index}`)),
  );
  for (const [index, reply] of replies.entries()) {
    expect(JSON.parse(reply.bytes.toString())).toEqual({ target: `/status?n=${index}` });
  }
});

test("two requests on one kept connection are served in turn", async () => {
  const { port, token } = await startWithUpstream();
  const headers = { host: `127.0.0.1:${port}`, authorization: `Bearer ${token()}` };
  const socket = connect({ host: "127.0.0.1", port });
  const answers: string[] = [];
  for (let count = 0; count < 3; count++) {
    socket.write(requestText("GET /status HTTP/1.1", headers));
    answers.push(await new Promise((resolve) => socket.once("data", (chunk) => resolve(String(chunk)))));
  }
  socket.destroy();
  for (const answer of answers) expect(answer).toContain("HTTP/1.1 200");
});

test("an answer is cut when the gateway is asked for HTTP/1.0, which could not show the cut", async () => {
  const { port, token, upstream } = await startWithUpstream();
  const headers = { host: `127.0.0.1:${port}`, authorization: `Bearer ${token()}` };
  const [reply] = await sendRaw(port, requestText("GET /status HTTP/1.0", headers));
  expect(reply?.status).toBe(400);
  expect(upstream.calls).toEqual([]);
});

test("an answer with an error after its end is whole", async () => {
  const { client, upstream } = await startWithUpstream();
  upstream.onRequest = (request, response) => {
    response.end("whole", () => request.socket.destroy());
  };
  expect(String((await client.get("/status")).bytes)).toBe("whole");
  const outgoing = client.begin("GET", "/status");
  outgoing.end();
  expect(String((await readReply(await answerOf(outgoing))).bytes)).toBe("whole");
});
