import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { encodeJobChunks, type JobChunk, JobChunkDecoder } from "./job-chunks.ts";

const OUTPUT = ["stdout", "stderr"] as const;

function bytesOf(hex: string): Uint8Array {
  return new Uint8Array(Buffer.from(hex.replaceAll(" ", ""), "hex"));
}

function joined(pieces: readonly JobChunk[]): string[] {
  const parts: string[] = [];
  let kind = "";
  for (const piece of pieces) {
    const text = Buffer.from(piece.bytes).toString("latin1");
    if (piece.kind === kind) parts.push((parts.pop() ?? "") + text);
    else parts.push(text);
    kind = piece.kind;
  }
  return parts;
}

test("every cut of a stream gives the same pieces", () => {
  const bytes = bytesOf("01 00000003 616263 02 00000001 64 01 00000002 6566");
  for (let cut = 1; cut <= bytes.length; cut += 1) {
    const decoder = new JobChunkDecoder(OUTPUT);
    const pieces: JobChunk[] = [];
    for (let at = 0; at < bytes.length; at += cut) pieces.push(...decoder.push(bytes.subarray(at, at + cut)));
    decoder.end();
    expect(joined(pieces)).toEqual(["abc", "d", "ef"]);
  }
});

test("a large output is cut into chunks within the limit and comes back whole", () => {
  const output = Uint8Array.from({ length: 200_000 }, (_, at) => at % 251);
  const chunks = encodeJobChunks("stdout", output);
  for (const chunk of chunks) expect(chunk.length).toBeLessThanOrEqual(32_768);
  const decoder = new JobChunkDecoder(OUTPUT);
  const pieces = chunks.flatMap((chunk) => decoder.push(chunk));
  expect(Buffer.compare(Buffer.concat(pieces.map((piece) => piece.bytes)), output)).toBe(0);
});

test("no bytes are no chunk", () => {
  expect(encodeJobChunks("stdin", new Uint8Array(0))).toEqual([]);
});

test("pieces are views of what arrived", () => {
  const bytes = bytesOf("01 00000003 616263");
  expect(new JobChunkDecoder(OUTPUT).push(bytes)[0]?.bytes.buffer).toBe(bytes.buffer);
});

const BAD: [string, string, string][] = [
  ["an unknown kind", "03 00000001", "bad_message"],
  ["kind 255", "ff 00000001", "bad_message"],
  ["stdin from the guest", "00 00000001 61", "wrong_direction"],
  ["an empty chunk", "01 00000000", "bad_message"],
  ["a chunk above the limit", "01 00010001", "too_large"],
  ["a chunk of four gigabytes", "01 ffffffff", "too_large"],
  ["an end within the header", "01 0000", "truncated"],
  ["an end within the bytes", "01 00000002 61", "truncated"],
  ["an end behind the header", "01 00000002", "truncated"],
];
for (const [name, hex, kind] of BAD) {
  test(`the host refuses ${name} as ${kind}`, () => {
    let found = "none";
    try {
      const decoder = new JobChunkDecoder(OUTPUT);
      decoder.push(bytesOf(hex));
      decoder.end();
    } catch (thrown) {
      found = thrown instanceof Failure ? thrown.kind : "not a failure";
    }
    expect(found).toBe(kind);
  });
}
