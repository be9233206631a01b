import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { JobSpool } from "./job-spool.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "spool-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const bytes = (text: string) => new TextEncoder().encode(text);

function readAll(spool: JobSpool, from: number): [number, string][] {
  const runs: [number, string][] = [];
  for (let at = from; ; ) {
    const run = spool.read(at, 1000);
    if (run === null) return runs;
    runs.push([run.kind, Buffer.from(run.bytes).toString()]);
    at = run.offset + run.bytes.length;
  }
}

test("output is read back in order, a run of one stream at a time", () => {
  const spool = new JobSpool(join(folder, "a"), 100);
  spool.append(1, bytes("one "));
  spool.append(1, bytes("two"));
  spool.append(2, bytes("bad"));
  spool.append(1, bytes("three"));
  expect(readAll(spool, 0)).toEqual([
    [1, "one two"],
    [2, "bad"],
    [1, "three"],
  ]);
  expect(readAll(spool, 5)[0]).toEqual([1, "wo"]);
  expect(spool.truncated).toBe(false);
});

test("only the last bytes are kept, and the first offset says so", () => {
  const spool = new JobSpool(join(folder, "a"), 10);
  for (let round = 0; round < 7; round += 1) spool.append(1, bytes(`${round}abc`));
  expect(spool.endOffset).toBe(28);
  expect(spool.firstOffset).toBe(18);
  expect(readAll(spool, 0)).toEqual([[1, "bc5abc6abc"]]);
  expect(spool.truncated).toBe(true);
});

test("one append larger than the ring keeps its end", () => {
  const spool = new JobSpool(join(folder, "a"), 4);
  spool.append(2, bytes("abcdefghij"));
  expect(readAll(spool, 0)).toEqual([[2, "ghij"]]);
  expect(spool.endOffset).toBe(10);
});

test("random appends always read back as the tail of what was written", () => {
  let seed = 7;
  const next = (below: number) => {
    seed = (seed * 1103515245 + 12345) & 0x7fffffff;
    return seed % below;
  };
  const spool = new JobSpool(join(folder, "a"), 257);
  let whole = "";
  for (let round = 0; round < 500; round += 1) {
    const piece = String.fromCharCode(97 + next(26)).repeat(1 + next(90));
    spool.append(next(2) === 0 ? 1 : 2, bytes(piece));
    whole += piece;
    const kept = readAll(spool, 0)
      .map(([, text]) => text)
      .join("");
    expect(kept).toBe(whole.slice(spool.firstOffset));
  }
});

test("a waiting reader wakes on output, on close and on abort", async () => {
  const spool = new JobSpool(join(folder, "a"));
  const first = spool.more();
  spool.append(1, bytes("x"));
  await first;
  const abort = new AbortController();
  const second = spool.more(abort.signal);
  abort.abort();
  await second;
  const third = spool.more();
  spool.close();
  await third;
});

test("removing gives the file back and is safe twice", () => {
  const spool = new JobSpool(join(folder, "a"));
  spool.append(1, bytes("x"));
  spool.remove();
  spool.remove();
  expect(readdirSync(folder)).toEqual([]);
  expect(spool.read(0, 10)).toBeNull();
});
