import { encodeMetaLine } from "@capsem/wire";
import { expect, test } from "vitest";
import { connect, FramedGuest, laneRig, until } from "./testing/lane-rig.ts";

const bytesOf = (text: string) => new Uint8Array(Buffer.from(text, "latin1"));
const endOf = async (stream: { read(): Promise<Uint8Array | null> }) => {
  try {
    while ((await stream.read()) !== null);
    return "end";
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : "thrown";
  }
};

test("what is neither frames nor HTTP is reset and recorded", async () => {
  for (const first of [
    "\u0016\u0003\u0001\u0002\0",
    "SSH-2.0-OpenSSH_9",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    '{"jsonrpc":"2.0"}',
  ]) {
    const rig = laneRig();
    const stream = connect(rig, "openssl");
    void stream.write(bytesOf(first));
    expect(await endOf(stream)).toContain("refused");
    expect(rig.rail.reservations).toEqual([
      {
        host: "mcp.capsem.internal",
        port: 80,
        method: null,
        path: null,
        processName: "openssl",
        status: null,
      },
    ]);
    expect(rig.rail.clients).toEqual([]);
  }
});

test("a stream without its metadata line is reset", async () => {
  for (const first of [
    "POST /mcp HTTP/1.1\r\n\r\n",
    "\0\0\0\u0012MC\u0001\u0010",
    "\0CAPSEM_META",
    `\0CAPSEM_META:${"x".repeat(5_000)}`,
  ]) {
    const rig = laneRig({ metaLineTimeoutMs: 20 });
    const stream = rig.guest.open(5002, "");
    void stream.write(bytesOf(first));
    expect(await endOf(stream), first.slice(0, 20)).toContain("refused");
    expect(rig.rail.clients).toEqual([]);
    expect(rig.reported).toEqual([]);
  }
});

test("a stream that says nothing is given up in time, and one that leaves at once is no fault", async () => {
  const rig = laneRig({ metaLineTimeoutMs: 20, firstByteTimeoutMs: 20 });
  expect(await endOf(rig.guest.open(5002, ""))).toContain("refused");
  expect(await endOf(connect(rig))).toContain("refused");
  const left = connect(rig);
  left.end();
  expect(await endOf(left)).toBe("end");
  const early = rig.guest.open(5002, "");
  early.end();
  expect(await endOf(early)).toContain("refused");
  await until(() => rig.guest.streamCount === 0, "all are over");
  expect(rig.rail.reservations).toEqual([]);
});

test("a few bytes and an end are recorded, for they are something else", async () => {
  const rig = laneRig();
  const stream = connect(rig);
  void stream.write(bytesOf("PO"));
  stream.end();
  expect(await endOf(stream)).toContain("refused");
  expect(rig.rail.reservations).toHaveLength(1);
});

test("the line and what follows may be cut anywhere", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig, "whole");
  guest.send(1, { jsonrpc: "2.0", id: 1, method: "ping" });
  await guest.took(1);

  const http = Buffer.concat([
    encodeMetaLine("cut"),
    Buffer.from("GET /mcp HTTP/1.1\r\nHost: mcp.capsem.internal\r\n\r\n"),
  ]);
  for (const cut of [1, 2, 13, 17, http.length]) {
    const stream = rig.guest.open(5002, "");
    for (let at = 0; at < http.length; at += cut) {
      await stream.write(new Uint8Array(http.subarray(at, at + cut)));
      await new Promise((resolve) => setImmediate(resolve));
    }
    const chunk = await stream.read();
    expect(Buffer.from(chunk ?? []).toString()).toContain("405 Method Not Allowed");
    stream.reset("cancelled");
  }
});

test("a door that closes takes every client with it", async () => {
  const rig = laneRig();
  const guests = [new FramedGuest(rig), new FramedGuest(rig)];
  for (const guest of guests) {
    guest.send(1, { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "hang" } });
  }
  const silent = connect(rig);
  await until(() => rig.rail.running.size === 2, "both run");
  rig.door.close();
  for (const guest of guests) expect(await guest.ended).toBe("reset");
  expect(await endOf(silent)).toContain("cancelled");
  await until(() => rig.rail.cancelled.length === 2 && rig.guest.streamCount === 0, "nothing is left");
});
