/** A seeded fuzzer of the ways in: streams of almost good bytes never harm another one, and leave nothing behind. */
import { assert } from "@capsem/base";
import { encodeMcpEnd, encodeMcpMessage, encodeMetaLine, type MuxStream } from "@capsem/wire";
import { requestBytes } from "./testing/http-guest.ts";
import { FramedGuest, type LaneRig, laneRig, until } from "./testing/lane-rig.ts";

type Random = (below: number) => number;

/** mulberry32: a small generator whose whole state is its seed. */
function randomOf(seed: number): Random {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

export async function fuzzDoor(seed: number, rounds: number): Promise<void> {
  const random = randomOf(seed);
  const rig = laneRig({
    metaLineTimeoutMs: 50,
    firstByteTimeoutMs: 50,
    bodyTimeoutMs: 50,
    requestWaitMs: 50,
  });
  const healthy = new FramedGuest(rig);
  for (let round = 1; round <= rounds; round += 1) {
    const streams = Array.from({ length: 1 + random(8) }, () => attack(random, rig));
    const ping = { jsonrpc: "2.0", id: round, method: "ping" };
    healthy.send(2 * round - 1, ping);
    await healthy.took(round);
    for (const stream of streams) if (random(2) === 0) stream.reset("cancelled");
    for (const stream of streams) stream.reset("cancelled");
    await until(() => rig.guest.streamCount === 1 && rig.door.http.connectionCount === 0, "all are over");
    assert(rig.reported.length === 0, `a bug: ${String(rig.reported[0])}`);
    assert(rig.door.begunBytes === 0, `${rig.door.begunBytes} bytes are still counted`);
  }
  const left = () => [...rig.rail.running].join(", ");
  await until(() => rig.rail.running.size === 0, "no call is left").catch(() =>
    assert(false, `left: ${left()}`),
  );
}

function attack(random: Random, rig: LaneRig): MuxStream {
  const stream = rig.guest.open(5002, "");
  const parts = [encodeMetaLine("x".repeat(random(200)))];
  const count = random(6);
  for (let at = 0; at < count; at += 1) parts.push(random(2) === 0 ? framed(random, at) : http(random));
  const bytes = new Uint8Array(Buffer.concat(parts));
  // Behind the line, for without it nothing gets far.
  for (let hits = random(4); hits > 0; hits -= 1) {
    bytes[random(3) === 0 ? random(bytes.length) : bytes.length - 1 - random(bytes.length >> 1 || 1)] =
      random(256);
  }
  const cut = 1 + random(bytes.length);
  for (let at = 0; at < bytes.length; at += cut)
    void stream.write(bytes.subarray(at, at + cut)).catch(() => undefined);
  void drain(stream);
  if (random(2) === 0) stream.end();
  return stream;
}

const NAMES = ["echo", "progress", "sample", "hang", "announce", "large"];

function message(random: Random): string {
  const id = [String(random(4)), '"a"', '""', "null", "1.5"][random(5)] ?? "0";
  const method =
    ["ping", "tools/call", "tools/list", "initialize", "notifications/cancelled"][random(5)] ?? "ping";
  const params = `{"name":"${NAMES[random(NAMES.length)]}","arguments":{"text":"t","chars":9},"requestId":${id}}`;
  const isNotification = random(4) === 0;
  return `{"jsonrpc":"2.0",${isNotification ? "" : `"id":${id},`}"method":"${method}","params":${params}}`;
}

function framed(random: Random, at: number): Uint8Array {
  if (random(8) === 0) return encodeMcpEnd();
  const streamId = random(4) === 0 ? 0 : 1 + 2 * at + random(2);
  return Buffer.concat(encodeMcpMessage({ streamId, processName: "n" }, message(random)));
}

function http(random: Random): Uint8Array {
  const method = ["POST", "POST", "POST", "GET", "DELETE", "OPTIONS", "CONNECT"][random(7)] ?? "POST";
  const headers: Record<string, string> = {};
  if (random(3) === 0) headers["mcp-session-id"] = `session-${random(4)}`;
  if (random(3) === 0) headers["mcp-protocol-version"] = ["2026-07-28", "2025-11-25", "x"][random(3)] ?? "";
  if (random(3) === 0) headers.accept = ["*/*", "text/event-stream", "application/json"][random(3)] ?? "";
  if (random(8) === 0) headers["transfer-encoding"] = "chunked";
  const path = ["/mcp", "/mcp", "/", "http://mcp.capsem.internal/mcp"][random(4)] ?? "/mcp";
  return requestBytes({ method, path, headers, ...(method === "POST" ? { body: message(random) } : {}) });
}

async function drain(stream: MuxStream): Promise<void> {
  try {
    while ((await stream.read()) !== null);
  } catch {
    return;
  }
}
