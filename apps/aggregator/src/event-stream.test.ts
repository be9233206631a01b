import { expect, test } from "vitest";
import { EventStreamParser, type ServerEvent } from "./event-stream.ts";
import { UPSTREAM_LIMITS } from "./limits.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const parse = (text: string, size = text.length * 4) => {
  const parser = new EventStreamParser();
  const all = bytes(text);
  const events: ServerEvent[] = [];
  for (let at = 0; at < all.length; at += size) events.push(...parser.push(all.subarray(at, at + size)));
  return { parser, events };
};
const data = (...texts: string[]) => texts.map((each) => ({ type: "message", data: each }));

test("events are what the specification says, in any chunks and with any line ends", () => {
  const table: [string, ServerEvent[]][] = [
    ["data: a\n\n", data("a")],
    ["data:a\n\n", data("a")],
    ["data:  a\n\n", data(" a")],
    ["data: a\ndata: b\n\n", data("a\nb")],
    ["data: a\r\n\r\ndata: b\r\rdata: c\n\n", data("a", "b", "c")],
    ["data: a\r\ndata: b\r\n\r\n", data("a\nb")],
    ["\uFEFFdata: a\n\n", data("a")],
    [": words\ndata: a\n: words\n\n", data("a")],
    ["event: endpoint\ndata: /m\n\ndata: b\n\n", [{ type: "endpoint", data: "/m" }, ...data("b")]],
    ["event: endpoint\n\ndata: b\n\n", data("b")],
    ["data\n\ndata:\n\n", []],
    ["data: not whole\n", []],
    ["data: not whole", []],
    ["datax: a\ndat: b\nDATA: c\n\n", []],
    ["data: é🙂ſ\n\n", data("é🙂ſ")],
    ["id: 1\nfoo: bar\nfoo\ndata: a\n\n", data("a")],
    ["\n\n\r\n\rdata: a\n\n\n\n", data("a")],
    ['data: {"a":"\\u00e9"}\n\n', data('{"a":"\\u00e9"}')],
  ];
  for (const [text, expected] of table) {
    for (const size of [1, 2, 3, 7, 1_000])
      expect([text, size, parse(text, size).events]).toEqual([text, size, expected]);
  }
});

test("where to go on and when is remembered, by whole events alone", () => {
  const table: [string, string | undefined, number | undefined][] = [
    ["id: 1\ndata: a\n\n", "1", undefined],
    ["id: 1\n\n", "1", undefined],
    ["id: 1\ndata: a\n", undefined, undefined],
    ["id: 1\n\ndata: a\n\n", "1", undefined],
    ["id: 1\n\nid\n\n", undefined, undefined],
    ["id: 1\n\nid: a\0b\n\n", "1", undefined],
    ["retry: 1500\n\n", undefined, 1_500],
    ["retry: 1500\nretry: 1e3\nretry: -1\n\n", undefined, 1_500],
  ];
  for (const [text, id, retry] of table) {
    const { parser } = parse(text, 3);
    expect([text, parser.lastEventId, parser.retryMs]).toEqual([text, id, retry]);
  }
});

/** Numbers that look random and are the same each time (mulberry32). */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** The specification's algorithm on a whole text, line by line. */
function expected(text: string): ServerEvent[] {
  const events: ServerEvent[] = [];
  const lines = text.replace(/^\uFEFF/, "").split(/\r\n|\r|\n/);
  lines.pop();
  let type = "";
  let values: string[] = [];
  for (const line of lines) {
    if (line === "") {
      const joined = values.join("\n");
      if (joined !== "") events.push({ type: type === "" ? "message" : type, data: joined });
      type = "";
      values = [];
      continue;
    }
    const [, name, value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (name === "data") values.push(value);
    else if (name === "event") type = value;
  }
  return events;
}

test("any bytes in any chunks give the events of the specification", () => {
  const seed = 20_260_728;
  const next = numbers(seed);
  const pieces = [
    "data",
    ":",
    " ",
    "\n",
    "\r",
    "\r\n",
    "a",
    "é",
    "event",
    "id",
    "retry",
    "1",
    "\n\n",
    "data: x\n\n",
    "\0",
  ];
  for (let round = 0; round < 3_000; round += 1) {
    const count = 1 + Math.floor(next() * 40);
    const text = Array.from({ length: count }, () => pieces[Math.floor(next() * pieces.length)]).join("");
    const size = 1 + Math.floor(next() * 9);
    expect([seed, round, text, parse(text, size).events]).toEqual([seed, round, text, expected(text)]);
  }
});

test("what is too much is refused before it is held", () => {
  const chunk = new Uint8Array(65_536);
  const table: [string, string, number][] = [
    ["a line without end", "data: ", 120],
    ["a field without end", "x", 120],
    ["a comment without end", ":", 120],
    ["lines", "\n", 10],
    ["data without an event", "data: x\n", 10],
    ["data: without a value", "data\n", 10],
    ["ids", "id: 1\n\n", 13],
  ];
  for (const [name, text, fill] of table) {
    const parser = new EventStreamParser();
    const pattern = bytes(text);
    for (let at = 0; at < chunk.length; at += 1)
      chunk[at] = fill === 120 ? 120 : (pattern[at % pattern.length] ?? 10);
    const pushes = () => {
      parser.push(pattern);
      for (let count = 0; count < 1_000; count += 1) parser.push(chunk);
    };
    expect(pushes, name).toThrow(/sends/);
    expect(parser.heldBytes, name).toBeLessThanOrEqual(UPSTREAM_LIMITS.messageBytesMax + 65_536);
  }
});

test("time grows with the bytes and not with their square, whatever the lines are", () => {
  const table: [string, Uint8Array, number][] = [
    ["one line in many chunks", bytes(`data: ${"x".repeat(10_000_000)}\n\n`), 512],
    ["line feeds before one carriage return", bytes(`${"\n".repeat(900_000)}\r`), 1_000_000],
    ["carriage returns without a line feed", bytes("\r".repeat(900_000)), 1_000_000],
  ];
  for (const [name, all, size] of table) {
    const parser = new EventStreamParser();
    const startedAt = performance.now();
    for (let at = 0; at < all.length; at += size) parser.push(all.subarray(at, at + size));
    // It takes a tenth of a second; one whose time is quadratic takes far more than this.
    expect([name, performance.now() - startedAt < 8_000]).toEqual([name, true]);
  }
});
