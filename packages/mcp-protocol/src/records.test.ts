import { concat, Failure } from "@capsem/base";
import { createMemoryLink, createMux, type MuxStream } from "@capsem/wire";
import { expect, test } from "vitest";
import { costInPasses } from "../../../tests/support/cost.ts";
import {
  encodeRecord,
  type McpRecord,
  RecordDecoder,
  type RecordKind,
  readRecords,
  writeRecord,
} from "./records.ts";

const DOWN: readonly RecordKind[] = ["notification", "request", "result", "error"];

function decode(bytes: Uint8Array, cut: number, accepts: readonly RecordKind[] = DOWN): McpRecord[] {
  const decoder = new RecordDecoder(accepts);
  const records: McpRecord[] = [];
  for (let at = 0; at < bytes.length; at += cut) records.push(...decoder.push(bytes.subarray(at, at + cut)));
  decoder.end();
  return records;
}

function failureOf(hex: string, accepts: readonly RecordKind[] = DOWN): string {
  const bytes = new Uint8Array(Buffer.from(hex.replaceAll(" ", ""), "hex"));
  const kinds = [1, 3, bytes.length].map((cut) => {
    try {
      decode(bytes, cut, accepts);
      return "taken";
    } catch (thrown) {
      if (thrown instanceof Failure) return thrown.kind;
      throw thrown;
    }
  });
  expect(new Set(kinds).size).toBe(1);
  return kinds[0] ?? "";
}

test("the bytes of a record", () => {
  expect(Buffer.from(encodeRecord("result", '{"ü":1}')).toString("hex")).toBe("03000000087b22c3bc223a317d");
  expect(encodeRecord("notification", "x")[0]).toBe(1);
  expect(encodeRecord("response", "x")[0]).toBe(5);
});

test("records come back, whatever the cuts", () => {
  const records: McpRecord[] = [
    { kind: "notification", text: '{"a":"ü😀"}' },
    { kind: "request", text: "{}" },
    { kind: "result", text: `{"x":"${"y".repeat(70_000)}"}` },
    { kind: "error", text: "7" },
  ];
  const bytes = concat(records.map(({ kind, text }) => encodeRecord(kind, text)));
  for (const cut of [1, 2, 5, 6, 1_000, 65_536, bytes.length]) {
    const decoded = decode(bytes, cut);
    expect(decoded.map(({ kind, text }) => ({ kind, text }))).toEqual(records);
    const kept = decoded.map((record) => record.bytes && Buffer.from(record.bytes).toString());
    expect(kept).toEqual([undefined, undefined, records[2]?.text, undefined]);
  }
});

test("a broken record is refused, at any cut", () => {
  expect(failureOf("00 00000001 78")).toBe("bad_message");
  expect(failureOf("06 00000001 78")).toBe("bad_message");
  expect(failureOf("ff 00000001 78")).toBe("bad_message");
  expect(failureOf("01 00000000")).toBe("bad_message");
  expect(failureOf("01 01000001")).toBe("too_large");
  expect(failureOf("01 ffffffff")).toBe("too_large");
  expect(failureOf("01 00000002 78")).toBe("truncated");
  expect(failureOf("01 000000")).toBe("truncated");
  expect(failureOf("01 00000001 ff")).toBe("bad_message");
  expect(failureOf("01 00000003 eda080")).toBe("bad_message");
});

test("a record of the other direction is refused", () => {
  expect(failureOf("05 00000001 78")).toBe("bad_message");
  expect(failureOf("03 00000001 78", ["response"])).toBe("bad_message");
  expect(failureOf("05 00000001 78", ["response"])).toBe("taken");
});

test("a text beyond 16 MiB is refused before it is sent", () => {
  expect(() => encodeRecord("result", "x".repeat(16_777_217))).toThrow("16777217 bytes");
  expect(encodeRecord("result", "x".repeat(16_777_216))).toHaveLength(16_777_221);
});

test("16 MiB in small chunks cost no more than in large ones", () => {
  const bytes = encodeRecord("result", "x".repeat(16_777_216));
  expect(decode(bytes, 4_096)[0]?.text).toHaveLength(16_777_216);
  // A copy for each chunk would be 32 GiB of copying.
  expect(costInPasses(() => decode(bytes, 4_096), 3)).toBeLessThan(10_000);
});

test("records go both ways over one stream, and a slow reader is waited for", async () => {
  const { a, b } = createMemoryLink();
  const opened: MuxStream[] = [];
  const host = createMux({ role: "host", transport: a, onOpen: () => undefined });
  const guest = createMux({ role: "guest", transport: b, onOpen: (stream) => opened.push(stream) });
  a.onChunk((chunk) => host.receive(chunk));
  b.onChunk((chunk) => guest.receive(chunk));
  const near = host.open(1, "");
  await writeRecord(near, "response", '{"id":1}');
  await new Promise((resolve) => setImmediate(resolve));
  const far = opened[0];
  if (far === undefined) throw new Error("the stream did not open");

  const sent = writeRecord(far, "result", JSON.stringify("z".repeat(600_000))).then(() => "sent");
  const first = await Promise.race([sent, new Promise((resolve) => setImmediate(() => resolve("waits")))]);
  expect(first).toBe("waits");
  const records: McpRecord[] = [];
  const reading = (async () => {
    for await (const record of readRecords(near, DOWN)) records.push(record);
  })();
  expect(await sent).toBe("sent");
  far.end();
  await reading;
  expect(records.map(({ kind, text }) => `${kind} ${text.length}`)).toEqual(["result 600002"]);

  near.end();
  const answers: McpRecord[] = [];
  for await (const record of readRecords(far, ["response"])) answers.push(record);
  expect(answers).toEqual([{ kind: "response", text: '{"id":1}' }]);
});
