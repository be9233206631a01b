/** Byte vectors of the mux, as the host sees the guest's bytes. Another implementation can run them as they are. */
import { expect, test } from "vitest";
import { createMux } from "./mux.ts";
import type { MuxStream, Transport } from "./types.ts";

const OPEN_1 = "00000008 02 00000001 1388 61";
const HELLO_DATA = "0000000a 03 00000001 68656c6c6f";
const END_1 = "00000005 05 00000001";
const CANCEL_1 = "00000006 06 00000001 01";
const fullCredit = (id: string) => `0000f005 03 ${id} ${"00".repeat(0xf000)}`.repeat(4);

interface Vector {
  readonly name: string;
  readonly hex: string;
  /** What the host writes back, as hex; the text of a lane reset is cut off. */
  readonly answer?: string;
  readonly end?: "violation" | "lost" | "closed";
  /** port:tag of each stream that was opened. */
  readonly opened?: readonly string[];
}

const LANE_VIOLATION = "06 00000000 05";

const VECTORS: readonly Vector[] = [
  { name: "good: open, data, end", hex: `${OPEN_1} ${HELLO_DATA} ${END_1}`, opened: ["5000:a"] },
  { name: "good: an empty tag", hex: "00000007 02 00000001 1388", opened: ["5000:"] },
  {
    name: "good: ids may leave gaps",
    hex: `${OPEN_1} 00000007 02 000000ff 1389`,
    opened: ["5000:a", "5001:"],
  },
  { name: "good: the peer resets its stream", hex: `${OPEN_1} ${CANCEL_1}`, opened: ["5000:a"] },
  { name: "good: late data after a reset is dropped", hex: `${OPEN_1} ${CANCEL_1} ${HELLO_DATA}` },
  {
    name: "good: a late grant after a reset is dropped",
    hex: `${OPEN_1} ${CANCEL_1} 00000009 04 00000001 00000001`,
  },
  { name: "good: the whole credit", hex: `${OPEN_1} ${fullCredit("00000001")}` },
  { name: "good: the peer closes the lane", hex: "00000006 06 00000000 01", end: "closed" },
  { name: "good: the peer resets the lane", hex: "00000008 06 00000000 05 6162", end: "lost" },
  { name: "truncated: half a length", hex: "0000" },
  { name: "truncated: half a frame", hex: `${OPEN_1} 0000000a 03 00000001 6865` },
  { name: "oversize: a length above the limit", hex: "00010001", end: "violation" },
  { name: "oversize: a length of four gigabytes", hex: "ffffffff", end: "violation" },
  {
    name: "oversize: a tag of 65 bytes",
    hex: `00000048 02 00000001 1388 ${"61".repeat(65)}`,
    end: "violation",
  },
  { name: "oversize: a payload on end", hex: `${OPEN_1} 00000006 05 00000001 00`, end: "violation" },
  {
    name: "oversize: a grant of five bytes",
    hex: `${OPEN_1} 0000000a 04 00000001 0000000100`,
    end: "violation",
  },
  {
    name: "oversize: a long reset text",
    hex: `${OPEN_1} 00000088 06 00000001 ${"01".repeat(131)}`,
    end: "violation",
  },
  {
    name: "oversize: data over the credit",
    hex: `${OPEN_1} ${fullCredit("00000001")} ${fullCredit("00000001")}`,
    end: "violation",
  },
  { name: "undersize: a length of zero", hex: "00000000", end: "violation" },
  { name: "undersize: a length that leaves out the id", hex: "00000004", end: "violation" },
  { name: "undersize: an open without a port", hex: "00000006 02 00000001 13", end: "violation" },
  { name: "undersize: empty data", hex: `${OPEN_1} 00000005 03 00000001`, end: "violation" },
  {
    name: "undersize: a grant of three bytes",
    hex: `${OPEN_1} 00000008 04 00000001 000001`,
    end: "violation",
  },
  { name: "undersize: a reset without a code", hex: `${OPEN_1} 00000005 06 00000001`, end: "violation" },
  { name: "unknown: type 0", hex: "00000005 00 00000001", end: "violation" },
  { name: "unknown: type 7", hex: "00000005 07 00000001", end: "violation" },
  { name: "unknown: reset code 0", hex: `${OPEN_1} 00000006 06 00000001 00`, end: "violation" },
  { name: "unknown: reset code 8", hex: `${OPEN_1} 00000006 06 00000001 08`, end: "violation" },
  { name: "unknown: lane reset code 99", hex: "00000006 06 00000000 63", end: "violation" },
  { name: "wrong: a tag that is not UTF-8", hex: "00000008 02 00000001 1388 ff", end: "violation" },
  { name: "wrong: a grant of nothing", hex: `${OPEN_1} 00000009 04 00000001 00000000`, end: "violation" },
  {
    name: "wrong: a grant above the ceiling",
    hex: `${OPEN_1} 00000009 04 00000001 00000001`,
    end: "violation",
  },
  { name: "wrong direction: an even id from the guest", hex: "00000007 02 00000002 1388", end: "violation" },
  {
    name: "wrong direction: data on a host id never opened",
    hex: "00000006 03 00000002 00",
    end: "violation",
  },
  { name: "wrong state: hello in an established lane", hex: "00000006 01 00000000 80", end: "violation" },
  { name: "wrong state: data on stream 0", hex: "00000006 03 00000000 00", end: "violation" },
  { name: "wrong state: open of stream 0", hex: "00000007 02 00000000 1388", end: "violation" },
  { name: "wrong state: data before open", hex: HELLO_DATA, end: "violation" },
  { name: "wrong state: end before open", hex: END_1, end: "violation" },
  { name: "wrong state: reset before open", hex: CANCEL_1, end: "violation" },
  { name: "wrong state: the same id twice", hex: `${OPEN_1} ${OPEN_1}`, end: "violation" },
  {
    name: "wrong state: an id used again after a reset",
    hex: `${OPEN_1} ${CANCEL_1} ${OPEN_1}`,
    end: "violation",
  },
  { name: "wrong state: ids that decrease", hex: `00000007 02 00000003 1388 ${OPEN_1}`, end: "violation" },
  {
    name: "wrong state: data after end resets the stream",
    hex: `${OPEN_1} ${END_1} ${HELLO_DATA}`,
    answer: "00000006 06 00000001 05",
  },
  {
    name: "wrong state: two ends reset the stream",
    hex: `${OPEN_1} ${END_1} ${END_1}`,
    answer: "00000006 06 00000001 05",
  },
];

function compact(hex: string): string {
  return hex.replaceAll(" ", "");
}

function run(bytes: Uint8Array, cut: number) {
  const written: Uint8Array[] = [];
  const opened: MuxStream[] = [];
  const transport: Transport = {
    write: (chunk) => written.push(chunk) > 0,
    onDrain: () => undefined,
    close: () => undefined,
  };
  const mux = createMux({ role: "host", transport, onOpen: (stream) => opened.push(stream) });
  for (let at = 0; at < bytes.length; at += cut) mux.receive(bytes.subarray(at, at + cut));
  return { mux, opened, answer: Buffer.concat(written).toString("hex") };
}

for (const vector of VECTORS) {
  test(vector.name, async () => {
    const bytes = Buffer.from(compact(vector.hex), "hex");
    for (const cut of bytes.length < 10_000 ? [1, 5, bytes.length] : [4_096, bytes.length]) {
      const { mux, opened, answer } = run(bytes, cut);
      const end = await Promise.race([mux.ended, Promise.resolve({ kind: undefined })]);
      expect(end.kind).toBe(vector.end);
      if (vector.opened !== undefined) {
        expect(opened.map((stream) => `${stream.port}:${stream.tag}`)).toEqual(vector.opened);
      }
      if (vector.end === "violation") {
        expect(answer.slice(8)).toMatch(new RegExp(`^${compact(LANE_VIOLATION)}`));
        expect(mux.streamCount).toBe(0);
      } else {
        expect(answer).toBe(compact(vector.answer ?? ""));
      }
    }
  });
}
