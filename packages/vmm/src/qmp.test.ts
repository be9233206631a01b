import { type Duplex, duplexPair } from "node:stream";
import type { Failure } from "@capsem/base";
import { expect, test, vi } from "vitest";
import { QMP_LINE_BYTES_MAX, QMP_PENDING_MAX } from "./limits.ts";
import { Qmp } from "./qmp.ts";

const GREETING = '{"QMP": {"version": {}, "capabilities": []}}\r\n';

/** A client and the other end of its stream, which says what the test wants. */
function connect(): { qmp: Qmp; ours: Duplex; peer: Duplex; sent: () => unknown[] } {
  const [ours, peer] = duplexPair();
  let text = "";
  peer.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  peer.on("error", () => undefined);
  const sent = () =>
    text
      .split("\n")
      .filter(Boolean)
      .map((line): unknown => JSON.parse(line));
  return { qmp: new Qmp(ours), ours, peer, sent };
}

async function failureOf(promise: Promise<unknown>): Promise<Failure> {
  return promise.then(
    () => Promise.reject(new Error("it succeeded")),
    (thrown: Failure) => thrown,
  );
}

test("the negotiation waits for the greeting and leaves the capability mode", async () => {
  const { qmp, peer, sent } = connect();
  const negotiated = qmp.negotiate(1_000);
  peer.write(GREETING);
  await vi.waitFor(() => expect(sent()).toEqual([{ execute: "qmp_capabilities", arguments: {}, id: 1 }]));
  peer.write('{"return": {}, "id": 1}\r\n');
  await negotiated;
});

test("answers reach their calls by id, in whatever pieces and order they come", async () => {
  const { qmp, peer } = connect();
  const first = qmp.call("query-status");
  const second = qmp.call("query-version");
  for (const byte of '{"return": 2, "id": 2}\n\n{"return": {"status": "paused"}, "id": 1}\n')
    peer.write(byte);
  expect(await first).toEqual({ status: "paused" });
  expect(await second).toBe(2);
});

test("a refusal carries QEMU's words and its class", async () => {
  const { qmp, peer } = connect();
  const call = failureOf(qmp.call("cont"));
  peer.write('{"error": {"class": "GenericError", "desc": "not finalized"}, "id": 1}\n');
  const { kind, message, detail } = await call;
  expect({ kind, message, detail }).toEqual({
    kind: "hypervisor_refused",
    message: "Cannot cont: not finalized",
    detail: "GenericError",
  });
});

test("a call ends at its time limit, and its late answer is dropped", async () => {
  const { qmp, peer } = connect();
  const failure = await failureOf(qmp.call("stop", {}, 1));
  expect(failure.kind).toBe("hypervisor_timeout");
  const next = qmp.call("query-status");
  peer.write('{"return": "late", "id": 1}\n{"return": "mine", "id": 2}\n');
  expect(await next).toBe("mine");
});

test("the end of the connection fails every pending and every later call", async () => {
  const { qmp, peer } = connect();
  const calls = [failureOf(qmp.call("stop")), failureOf(qmp.call("cont")), failureOf(qmp.negotiate(1_000))];
  peer.end();
  for (const call of calls) expect((await call).kind).toBe("hypervisor_exit");
  expect(await qmp.ended).toBeUndefined();
  expect((await failureOf(qmp.call("quit"))).kind).toBe("hypervisor_exit");
});

test("a broken connection is an end like the others", async () => {
  const { qmp, ours } = connect();
  const call = failureOf(qmp.call("stop"));
  ours.destroy(new Error("reset"));
  expect((await call).kind).toBe("hypervisor_exit");
  expect(await qmp.ended).toBeUndefined();
});

const GARBAGE = {
  "no JSON": "hello",
  "a list": "[]",
  "a number": "7",
  null: "null",
  "an object of no form": '{"id": 1}',
  "an answer without id": '{"return": {}}',
  "an answer with a text as id": '{"return": {}, "id": "1"}',
  "an answer with half an id": '{"return": {}, "id": 1.5}',
  "an event with a number as name": '{"event": 1}',
  "an event with a list as data": '{"event": "STOP", "data": []}',
  "a refusal without words": '{"error": {}, "id": 1}',
  "a refusal that is a text": '{"error": "x", "id": 1}',
  "a byte that is no text": "\u0000",
};

test.each(Object.entries(GARBAGE))("%s ends the connection and the calls", async (_name, line) => {
  const { qmp, peer } = connect();
  const call = failureOf(qmp.call("stop"));
  peer.write(`${line}\n`);
  expect((await call).kind).toBe("hypervisor_protocol");
  expect((await qmp.ended)?.kind).toBe("hypervisor_protocol");
});

test("a line that never ends is cut at its limit", async () => {
  const { qmp, peer } = connect();
  const call = failureOf(qmp.call("stop"));
  peer.write(Buffer.alloc(QMP_LINE_BYTES_MAX, "x"));
  expect(qmp.isOver).toBe(false);
  peer.write("x");
  expect((await call).kind).toBe("hypervisor_protocol");
});

test("a line of exactly the limit is read", async () => {
  const { qmp, peer } = connect();
  const call = qmp.call("query-version");
  const frame = '{"return": "", "id": 1}';
  const filled = frame.replace('""', `"${"x".repeat(QMP_LINE_BYTES_MAX - frame.length)}"`);
  peer.write(`${filled}\n`);
  expect(await call).toHaveLength(QMP_LINE_BYTES_MAX - frame.length);
});

test("answers and refusals that nobody waits for are dropped", async () => {
  const { qmp, peer } = connect();
  peer.write('{"return": {}, "id": 99}\n{"error": {"class": "x", "desc": "y"}}\n');
  peer.write('{"error": {"class": "x", "desc": "y"}, "id": 99}\n');
  const call = qmp.call("stop");
  peer.write('{"return": {}, "id": 1}\n');
  await call;
});

test("an event reaches its listeners until they leave", () => {
  const { qmp, peer } = connect();
  const seen: unknown[] = [];
  const leave = qmp.on("VSERPORT_CHANGE", (data) => seen.push(data));
  qmp.on("STOP", (data) => seen.push(data));
  return (async () => {
    peer.write(
      '{"event": "VSERPORT_CHANGE", "data": {"open": true}}\n{"event": "UNKNOWN"}\n{"event": "STOP"}\n',
    );
    await vi.waitFor(() => expect(seen).toEqual([{ open: true }, {}]));
    leave();
    const call = qmp.call("stop");
    peer.write('{"event": "VSERPORT_CHANGE", "data": {}}\n{"return": {}, "id": 1}\n');
    await call;
    expect(seen).toHaveLength(2);
  })();
});

test("a listener that closes the connection stops the reading of the same piece", async () => {
  const { qmp, peer } = connect();
  const seen: unknown[] = [];
  qmp.on("STOP", () => {
    seen.push("stop");
    qmp.close();
  });
  peer.write('{"event": "STOP"}\n{"event": "STOP"}\n');
  await qmp.ended;
  expect(seen).toEqual(["stop"]);
});

test("more calls at once than the limit are a bug", async () => {
  const { qmp, peer } = connect();
  const calls = Array.from({ length: QMP_PENDING_MAX }, () => failureOf(qmp.call("stop")));
  await expect(qmp.call("stop")).rejects.toThrow("too many QMP calls at once");
  peer.end();
  await Promise.all(calls);
});
