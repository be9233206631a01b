/** A gateway under bytes that are nearly requests. Seeded; run by request.fuzz.test.ts. */

/** mulberry32: small, and the same everywhere. */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

export interface Scene {
  readonly host: string;
  /** A right one: what is sent with it may reach the service. */
  readonly token: string;
}

const METHODS = [
  "GET",
  "POST",
  "PUT",
  "DELETE",
  "PATCH",
  "OPTIONS",
  "TRACE",
  "CONNECT",
  "HEAD",
  "get",
  "X",
  "",
];
const TARGETS = [
  "/status",
  "/vms/list",
  "/vms/create",
  "/vms/vm_abcdefghij234567/info",
  "/vms/../x/info",
  "/events",
  "//status",
  "*",
  "http://a/status",
  "/%00",
  "/a?b=c",
  "",
];
const RIGHT = [
  "GET /status",
  "GET /vms/list",
  "GET /health",
  "POST /vms/create",
  "PUT /vms/vm_abcdefghij234567/files/content?path=a",
];
const VERSIONS = ["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.1 ", "", "http/1.1", "HTTP/9.9"];
const HEADERS = [
  "connection: close",
  "connection: keep-alive, upgrade",
  "upgrade: websocket",
  "sec-websocket-version: 13",
  "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
  "sec-websocket-protocol: capsem.stream.v1, capsem.token.x",
  "content-length: 3",
  "content-length: -1",
  "content-length: 99999999999999999999",
  "transfer-encoding: chunked",
  "transfer-encoding: chunked, identity",
  "expect: 100-continue",
  "origin: http://localhost:1",
  "origin: http://evil.example",
  "host: evil.example",
  "x-a: \x00",
  "x-a: \xff\xfe",
  " folded",
  ": nameless",
  "bare",
  "authorization: Basic eDp5",
  "authorization: Bearer x",
  `x-long: ${"a".repeat(9_000)}`,
];
const BODIES = [
  "",
  "{}",
  "abc",
  "3\r\nabc\r\n0\r\n\r\n",
  "zz\r\n",
  "GET /vms/list HTTP/1.1\r\n\r\n",
  "\x00\x01\x02",
];

/** One connection's bytes: a request put together from right and wrong parts, and then perhaps damaged. */
export function fuzzedRequest(random: () => number, { host, token }: Scene): Buffer {
  const pick = (list: readonly string[]): string => list[Math.floor(random() * list.length)] ?? "";
  const words = random() < 0.5 ? pick(RIGHT) : `${pick(METHODS)} ${pick(TARGETS)}`;
  const lines = [`${words} ${random() < 0.8 ? "HTTP/1.1" : pick(VERSIONS)}`];
  if (random() < 0.9) lines.push(`host: ${host}`);
  if (random() < 0.6) lines.push(`authorization: Bearer ${token}`);
  for (let count = Math.floor(random() * 5); count > 0; count--) lines.push(pick(HEADERS));
  const end = random() < 0.95 ? "\r\n" : pick(["\n", "\r", "\r\n\r\n", ""]);
  const bytes = Buffer.from(`${lines.join(end)}${end}${end}${pick(BODIES)}`, "latin1");
  if (random() < 0.4) {
    for (let count = 1 + Math.floor(random() * 4); count > 0; count--) {
      bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
    }
  }
  return random() < 0.1 ? bytes.subarray(0, Math.floor(random() * bytes.length)) : bytes;
}
