import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { HTTP_LIMITS } from "./limits.ts";
import { requestText, sendRaw } from "./testing/raw-client.ts";
import { type UpstreamRig, useGateways } from "./testing/use-gateways.ts";

const { startWithUpstream } = useGateways();
const ID = "vm_abcdefghij234567";

function headersOf({ port, token }: UpstreamRig, more: Record<string, string | string[]> = {}) {
  return { host: `127.0.0.1:${port}`, authorization: `Bearer ${token()}`, connection: "close", ...more };
}

test.each([
  ["/nope", 404],
  ["/", 404],
  ["//status", 404],
  ["/status/", 404],
  ["/status//", 404],
  ["/STATUS", 404],
  ["/./status", 404],
  ["/x/../status", 404],
  ["/vms/../status", 400],
  ["/%2e%2e/status", 404],
  ["/vms/list%2f", 404],
  ["/%73tatus", 404],
  [`/vms/${ID}/../../status`, 404],
  [`/vms//info`, 404],
  ["/vms/%zz/info", 404],
  ["/vms/..%2f..%2fetc/info", 400],
  ["/vms/%2e%2e/info", 400],
  ["/vms/../info", 400],
  [`/vms/${ID}%00/info`, 400],
  [`/vms/${ID}%2finfo/info`, 400],
  ["/host-logs/..%2f..%2fetc%2fpasswd", 400],
  ["*", 400],
  ["*/status", 400],
  ["status", 400],
  ["http://127.0.0.1:1/status", 400],
  ["http://evil.example/status", 400],
  ["/status#x", 400],
  ["/status?q=\xe9", 400],
])("target %s is %i without a call to the service", async (target, status) => {
  const rig = await startWithUpstream();
  const [reply] = await sendRaw(rig.port, requestText(`GET ${target} HTTP/1.1`, headersOf(rig)));
  expect(reply?.status, reply?.text).toBe(status);
  expect(reply?.kind).toBe(status === 404 ? "route_not_found" : "invalid_input");
  expect(rig.upstream.calls).toEqual([]);
});

test.each([
  ["TRACE /status", 404],
  ["HEAD /status", 404],
  ["POST /status", 404],
  ["PROPFIND /status", 404],
  ["CONNECT 127.0.0.1:22", 404],
  ["CONNECT /status", 404],
  ["BREW /status", 400],
  ["get /status", 400],
])("%s is %i without a call", async (line, status) => {
  const rig = await startWithUpstream();
  const [reply] = await sendRaw(rig.port, requestText(`${line} HTTP/1.1`, headersOf(rig)));
  expect(reply?.status, reply?.text).toBe(status);
  expect(rig.upstream.calls).toEqual([]);
});

test("a long query passes up to the limit of the headers, and above it is 413", async () => {
  const rig = await startWithUpstream();
  const fits = `/status?x=${"a".repeat(HTTP_LIMITS.headerBytesMax - 400)}`;
  expect((await rig.client.get(fits)).status).toBe(200);
  expect(rig.upstream.calls[0]?.target).toBe(fits);
  const [reply] = await sendRaw(
    rig.port,
    requestText(`GET /status?x=${"a".repeat(HTTP_LIMITS.headerBytesMax)} HTTP/1.1`, headersOf(rig)),
  );
  expect(reply).toMatchObject({ status: 413, kind: "too_large" });
  expect(rig.upstream.calls).toHaveLength(1);
});

test("too many headers are 413", async () => {
  const rig = await startWithUpstream();
  const many = Object.fromEntries(Array.from({ length: 100 }, (_value, index) => [`x-h${index}`, "1"]));
  const [reply] = await sendRaw(rig.port, requestText("GET /status HTTP/1.1", headersOf(rig, many)));
  expect(reply).toMatchObject({ status: 413, kind: "too_large" });
  expect(rig.upstream.calls).toEqual([]);
});

const HIDDEN = "GET /vms/list HTTP/1.1\r\nx: y\r\n\r\n";
const SMUGGLED: readonly (readonly [string, Record<string, string | string[]>, string])[] = [
  ["both a length and chunks", { "content-length": "5", "transfer-encoding": "chunked" }, "0\r\n\r\n"],
  ["chunks and a length", { "transfer-encoding": "chunked", "content-length": "5" }, "0\r\n\r\n"],
  ["two lengths", { "content-length": ["0", String(HIDDEN.length)] }, HIDDEN],
  ["a length list", { "content-length": `0, ${HIDDEN.length}` }, HIDDEN],
  ["a signed length", { "content-length": "+0" }, ""],
  ["a negative length", { "content-length": "-1" }, ""],
  ["a hex length", { "content-length": "0x10" }, ""],
  ["another coding", { "transfer-encoding": "gzip, chunked" }, "0\r\n\r\n"],
  ["an unknown coding", { "transfer-encoding": "xchunked" }, "0\r\n\r\n"],
  ["chunks twice", { "transfer-encoding": ["chunked", "chunked"] }, "0\r\n\r\n"],
  ["chunks twice in one", { "transfer-encoding": "chunked, chunked" }, "0\r\n\r\n"],
  ["identity", { "transfer-encoding": "identity" }, ""],
  ["a bad chunk size", { "transfer-encoding": "chunked" }, "zz\r\nhello\r\n0\r\n\r\n"],
  ["a space before the colon", { "content-length ": "5" }, "hello"],
  ["an expectation of its own", { expect: "200-maybe", "content-length": "2" }, "{}"],
];

test.each(SMUGGLED)("%s in the framing is refused, and nothing hidden runs", async (_name, more, body) => {
  const rig = await startWithUpstream();
  const replies = await sendRaw(
    rig.port,
    requestText("POST /vms/create HTTP/1.1", headersOf(rig, more), body),
  );
  expect(replies.map(({ status }) => status)).toEqual([400]);
  expect(replies[0]?.kind).toBe("invalid_input");
  expect(rig.upstream.calls.filter(({ target }) => target === "/vms/list")).toEqual([]);
});

test.each([
  ["a header that goes on in the next line", "x-a: 1\r\n  two"],
  ["a bare line feed inside a header", "x-a: 1\nauthorization: y"],
  ["a null byte", "x-a: \0"],
])("%s never reaches the service as a second header", async (_name, line) => {
  const rig = await startWithUpstream();
  const head = `GET /status HTTP/1.1\r\nhost: 127.0.0.1:${rig.port}\r\nauthorization: Bearer ${rig.token()}\r\n`;
  const [reply] = await sendRaw(rig.port, `${head}${line}\r\nconnection: close\r\n\r\n`);
  for (const { rawHeaders } of rig.upstream.calls) expect(rawHeaders).not.toContain("x-a");
  if (reply?.status !== 200) expect(reply?.kind).toMatch(/invalid_input|unauthorized/);
});

test("a pipelined request is refused after the answer of the one before it, and does not run", async () => {
  const rig = await startWithUpstream();
  const { connection: _dropped, ...kept } = headersOf(rig);
  const first = requestText("GET /status HTTP/1.1", kept);
  const second = requestText("POST /vms/create HTTP/1.1", headersOf(rig, { "content-length": "2" }), "{}");
  const replies = await sendRaw(rig.port, first + second);
  expect(replies.map(({ status, kind }) => [status, kind])).toEqual([
    [200, undefined],
    [400, "invalid_input"],
  ]);
  expect(rig.upstream.calls.map(({ target }) => target)).toEqual(["/status"]);
});

test("HTTP/1.0 and garbage are refused with an error object", async () => {
  const rig = await startWithUpstream();
  const [old] = await sendRaw(rig.port, requestText("GET /status HTTP/1.0", headersOf(rig)));
  expect(old).toMatchObject({ status: 400, kind: "invalid_input" });
  const [garbage] = await sendRaw(rig.port, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n");
  expect(garbage).toMatchObject({ status: 400, kind: "invalid_input" });
  const preface = await sendRaw(rig.port, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  expect(preface.map(({ status }) => status)).toEqual([400]);
  expect(rig.upstream.calls).toEqual([]);
});

test("a body where the route takes none is refused", async () => {
  const rig = await startWithUpstream();
  const reply = await rig.client.call("GET", "/status", { headers: { "content-length": "2" }, body: "{}" });
  expect(reply).toMatchObject({ status: 400, kind: "invalid_input" });
  expect((await rig.client.call("POST", `/vms/${ID}/stop`, { body: "" })).status).toBe(200);
  expect(rig.upstream.calls).toHaveLength(1);
});

test("an upgrade of a plain route, and a plain request of a WebSocket route, are refused", async () => {
  const rig = await startWithUpstream();
  const upgrade = { connection: "Upgrade, HTTP2-Settings", upgrade: "h2c", "http2-settings": "x" };
  const [reply] = await sendRaw(rig.port, requestText("GET /status HTTP/1.1", headersOf(rig, upgrade)));
  expect(reply).toMatchObject({ status: 400, kind: "invalid_input" });
  expect(await rig.client.get("/events")).toMatchObject({ status: 400, kind: "invalid_input" });
  expect(rig.upstream.calls).toEqual([]);
});

test("of the client's headers only the allowed ones reach the service, and its requester is ours", async () => {
  const rig = await startWithUpstream();
  await rig.client.call("POST", "/vms/create?hold=false", {
    body: "{}",
    headers: {
      "content-type": "application/json",
      traceparent: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
      "x-capsem-time-left-ms": "5000",
      "x-capsem-requester": "user",
      "x-capsem-client": "editor/1.2",
      "x-capsem-turn": "turn-7",
      "x-capsem-asks": "later",
      "x-capsem-token-id": "deadbeef",
      "x-forwarded-for": "1.2.3.4",
      forwarded: "for=1.2.3.4",
      cookie: "a=b",
      "proxy-authorization": "Basic x",
      te: "trailers",
      "x-dropped": "1",
      connection: "close, x-dropped",
    },
  });
  const raw = rig.upstream.calls[0]?.rawHeaders ?? [];
  const names = raw.filter((_value, index) => index % 2 === 0).map((name) => name.toLowerCase());
  expect(names.sort()).toEqual(
    [
      "connection",
      "content-length",
      "content-type",
      "host",
      "traceparent",
      "x-capsem-asks",
      "x-capsem-client",
      "x-capsem-requester",
      "x-capsem-time-left-ms",
      "x-capsem-token-id",
      "x-capsem-turn",
    ].sort(),
  );
  const sent = (header: string) => raw[raw.findIndex((name) => name.toLowerCase() === header) + 1];
  expect(sent("x-capsem-requester")).toBe("gateway");
  expect(sent("x-capsem-client")).toBe("editor/1.2");
  expect(sent("x-capsem-turn")).toBe("turn-7");
  expect(sent("x-capsem-asks")).toBe("later");
  // The gateway's word, whatever the client said.
  expect(sent("x-capsem-token-id")).toBe(createHash("sha256").update(rig.token()).digest("hex").slice(0, 8));
  expect(raw.join("\n")).not.toContain(rig.token());
});
